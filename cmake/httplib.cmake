# cpp-httplib as one header that holds all of it.
#
# Debian's libcpp-httplib-dev has only half of it: its header declares, and the rest is a shared library that needs
# OpenSSL, zlib and brotli, while what we ship needs glibc alone. The whole header is in Debian's source package, with
# Debian's security fixes; httplib.sh fetches that once. -DBERTH_HTTPLIB=FOLDER names another folder with a whole one.
set(BERTH_HTTPLIB "${PROJECT_SOURCE_DIR}/build/httplib" CACHE PATH "a folder with the whole httplib.h")

if(NOT EXISTS "${BERTH_HTTPLIB}/httplib.h")
  message(STATUS "Fetching Debian's source of cpp-httplib")
  execute_process(COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/httplib.sh" "${BERTH_HTTPLIB}" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "cpp-httplib's source cannot be had from Debian; give -DBERTH_HTTPLIB=FOLDER with its httplib.h")
  endif()
endif()

# berth_needs_httplib(SOURCE): for one source file, since it takes long to compile.
function(berth_needs_httplib source)
  # Before /usr/include, where half of it may be.
  set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-isystem;${BERTH_HTTPLIB}")
endfunction()
