# Functions that build a folder of the project: a static library and its test program.

add_library(berth_flags INTERFACE)
target_compile_options(berth_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  $<$<BOOL:${BERTH_WERROR}>:-Werror>
  -ffunction-sections -fdata-sections)  # so that the linker can remove unused code, see berth_ships()
# A tenth of the time of g++ would go into the search for memory that it can use again. Without that, it needs up to 600 MB.
# Not in the preset lint, whose commands clang-tidy reads.
if(BERTH_UNITY)
  target_compile_options(berth_flags INTERFACE "$<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=600000>")
endif()
# Only clang checks which mutex guards what; see src/base/thread_annotations.h.
target_compile_options(berth_flags INTERFACE
  "$<$<CXX_COMPILER_ID:Clang>:-Wthread-safety;-Werror=thread-safety>")
target_compile_definitions(berth_flags INTERFACE BERTH_VERSION="${PROJECT_VERSION}")
target_include_directories(berth_flags INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
# The headers of libraries that have no target of CMake, in case they are not in the compiler's own folders.
target_include_directories(berth_flags SYSTEM INTERFACE "${FMT_HEADERS}" "${TOMLPLUSPLUS_HEADERS}" "${HIREDIS_HEADERS}"
  "${NCURSES_HEADERS}")

# berth_unity(NAME SOURCE...): compiles the sources of NAME in groups of one folder, each group as one file. Much of the time
# to compile a source goes into headers and templates that the sources of a group share. The groups are small, because a
# change of one source compiles its whole group, and of about the same size, because the largest decides how long that takes.
function(berth_unity name)
  if(NOT BERTH_UNITY)
    return()
  endif()
  set(group_size 7)
  set(folders "")
  foreach(source IN LISTS ARGN)
    get_source_file_property(alone "${source}" SKIP_UNITY_BUILD_INCLUSION)
    if(NOT alone)
      cmake_path(GET source PARENT_PATH folder)
      string(MAKE_C_IDENTIFIER "${folder}_" folder)
      list(APPEND folders "${folder}")
      list(APPEND sources_${folder} "${source}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(LENGTH sources_${folder} count)
    math(EXPR groups "(${count} + ${group_size} - 1) / ${group_size}")
    set(index 0)
    foreach(source IN LISTS sources_${folder})
      math(EXPR group "${index} * ${groups} / ${count}")
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}${group}")
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # The warning is for types of headers. It takes the sources of a group for headers.
  target_compile_options(${name} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
endfunction()

# berth_precompile(NAME): the sources of NAME share a precompiled header, that of berth_base. All libraries have the same
# compiler options, without which the compiler refuses it. Not with ccache, which would find no result of another folder.
function(berth_precompile name)
  if(NOT BERTH_PRECOMPILE OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  if(name STREQUAL "berth_base")
    target_precompile_headers(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src/base/precompiled.h")
  else()
    target_precompile_headers(${name} REUSE_FROM berth_base)
  endif()
endfunction()

# berth_optimize(NAME): for code that computes much, such as a decision about 100,000 tickets. Without the precompiled header,
# which has other compiler options.
function(berth_optimize name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O2>)
  set_target_properties(${name} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
endfunction()

# berth_library(NAME [SOURCES ...] [TESTS ...] [THREADED_TESTS ...] [NEEDS ...] [THREADED_SOURCES REGEX])
#
# THREADED_TESTS are the unit tests that start threads, or test code that several threads use. With BERTH_ONLY_THREADS (the
# preset tsan) the other unit tests are not built, and if THREADED_SOURCES is given, only sources that match it.
function(berth_library name)
  cmake_parse_arguments(ARG "" "THREADED_SOURCES" "SOURCES;TESTS;THREADED_TESTS;NEEDS" ${ARGN})
  if(NOT BERTH_ONLY_THREADS)
    list(APPEND ARG_THREADED_TESTS ${ARG_TESTS})
  elseif(ARG_THREADED_SOURCES)
    list(FILTER ARG_SOURCES INCLUDE REGEX "${ARG_THREADED_SOURCES}")
  endif()
  set(ARG_TESTS ${ARG_THREADED_TESTS})
  add_library(${name} STATIC ${ARG_SOURCES})
  berth_unity(${name} ${ARG_SOURCES})
  berth_precompile(${name})
  target_link_libraries(${name} PUBLIC ${ARG_NEEDS} PRIVATE berth_flags)
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  if(BERTH_TESTS AND ARG_TESTS)
    add_executable(${name}_test ${ARG_TESTS})
    berth_unity(${name}_test ${ARG_TESTS})
    # Tests run once; to optimise them takes longer than it saves.
    target_compile_options(${name}_test PRIVATE -O0 -U_FORTIFY_SOURCE)
    target_link_libraries(${name}_test PRIVATE ${name} berth_flags GTest::gtest GTest::gtest_main
      nlohmann_json::nlohmann_json)
    target_compile_definitions(${name}_test PRIVATE
      BERTH_TEST_SIM_DIR="${BERTH_OUTPUT_DIR}/lib/sim" BERTH_TEST_BIN_DIR="${BERTH_OUTPUT_DIR}/bin")
    set_target_properties(${name}_test PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/unit")
    add_dependencies(unit_tests ${name}_test)
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 120)
  endif()
endfunction()

# Fedora has these in packages of their own, Debian together with the compiler.
set(berth_static_runtime ON)
foreach(library libstdc++.a libm.a)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=${library}
    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${path}")
    message(STATUS "no ${library}: linking the shared libraries of the compiler")
    set(berth_static_runtime OFF)
  endif()
endforeach()

# berth_ships(NAME): the shipped files need only glibc; all other libraries are linked statically, if the host has them in
# that form. Call it after the last target_link_libraries() of NAME.
function(berth_ships name)
  target_link_libraries(${name} PRIVATE berth_flags)
  # Not with sanitizers: their operator new must stay visible to the C++ library. Not with coverage: the linker keeps all
  # functions that have counters, and those of libm cannot be linked statically into a program that loads libraries.
  if(berth_static_runtime AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize|-fprofile-instr-generate")
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
    # Parts of the C++ library that the linker removes refer to libm. The static libm is removed with them; a shared
    # libm would be loaded at every start.
    target_link_libraries(${name} PRIVATE -l:libstdc++.a -l:libm.a)
    berth_order_startup(${name})
  endif()
  # Functions of glibc are found at the start: one by one, after the fork of the driver's helper, they would cost page faults
  # in both processes.
  target_link_options(${name} PRIVATE -Wl,--gc-sections -Wl,--as-needed -Wl,-z,now)
endfunction()
