# Fetches cpp-httplib as a single header (header-only form).
#
# Debian's libcpp-httplib-dev is split into a header with declarations and a shared library that needs OpenSSL, zlib and
# brotli. The shipped programs may need only glibc. Debian's source package has the complete header, with Debian's
# security fixes; httplib.sh fetches it once. -DBERTH_HTTPLIB=FOLDER uses the complete header of another folder.
set(BERTH_HTTPLIB "${PROJECT_SOURCE_DIR}/build/httplib" CACHE PATH "Folder with the complete (header-only) httplib.h")

if(NOT EXISTS "${BERTH_HTTPLIB}/httplib.h")
  message(STATUS "Fetching Debian's source of cpp-httplib")
  execute_process(COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/httplib.sh" "${BERTH_HTTPLIB}" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "cannot fetch the source of cpp-httplib from Debian; set -DBERTH_HTTPLIB=FOLDER to a folder "
      "with its httplib.h")
  endif()
endif()

# berth_needs_httplib(SOURCE): lets one source file include httplib.h, which is slow to compile.
function(berth_needs_httplib source)
  # Before /usr/include, which may have Debian's split header.
  set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-isystem;${BERTH_HTTPLIB}")
endfunction()
