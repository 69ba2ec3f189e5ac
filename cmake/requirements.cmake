# Finds what the build needs; downloads and installs nothing. BERTH_MISSING becomes one line that names all that is missing,
# or stays empty. The caller prints it, since CMake would add its call stack to a message from here.

set(berth_missing_names "")
set(berth_apt_packages "")
set(berth_dnf_packages "")

# berth_need(NAME APT_PACKAGE DNF_PACKAGE VARIABLE...): NAME is missing unless every VARIABLE is true.
macro(berth_need name apt_package dnf_package)
  foreach(berth_variable ${ARGN})
    if(NOT ${berth_variable})
      list(APPEND berth_missing_names "${name}")
      list(APPEND berth_apt_packages ${apt_package})
      list(APPEND berth_dnf_packages ${dnf_package})
      break()
    endif()
  endforeach()
endmacro()

# The compiler. check_language() also tries whether it works, where enable_language() would end the configuration.
if(DEFINED CMAKE_CXX_COMPILER)
  set(berth_compiler "${CMAKE_CXX_COMPILER}")
else()
  include(CheckLanguage)
  check_language(CXX)
  if(NOT CMAKE_CXX_COMPILER AND SKBUILD AND DEFINED ENV{CXX})
    # scikit-build-core sets CXX to the compiler of Python itself, which this host may lack.
    message(STATUS "CXX=$ENV{CXX} does not work; looking for another compiler")
    unset(ENV{CXX})
    unset(CMAKE_CXX_COMPILER CACHE)
    unset(CMAKE_CXX_COMPILER)
    check_language(CXX)
  endif()
  set(berth_compiler "${CMAKE_CXX_COMPILER}")
  # Not kept: NOTFOUND would stay in the cache after a compiler is installed, and "ccache g++" would become "ccache".
  unset(CMAKE_CXX_COMPILER CACHE)
  unset(CMAKE_CXX_COMPILER)
endif()
berth_need("a C++20 compiler" g++ gcc-c++ berth_compiler)
if(berth_compiler)
  enable_language(CXX)
  if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11) OR
     (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14))
    list(APPEND berth_missing_names "g++ 11 or clang++ 14, or later (${CMAKE_CXX_COMPILER} \
is version ${CMAKE_CXX_COMPILER_VERSION}; set CXX to a later one)")
  endif()
elseif(NOT CMAKE_LIBRARY_ARCHITECTURE)
  # Where Debian has libraries; CMake learns it from the compiler.
  set(CMAKE_LIBRARY_ARCHITECTURE "${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu")
endif()

# Libraries of which only headers are used; docs/dependencies.md says why each. NO_CACHE: a library may be removed between
# two builds in the same folder.
find_package(fmt 9 QUIET)
find_path(FMT_HEADERS fmt/format-inl.h NO_CACHE)
berth_need("fmt 9 or later" libfmt-dev fmt-devel fmt_FOUND FMT_HEADERS)
find_package(tl-expected QUIET)
find_path(TL_EXPECTED_HEADERS tl/expected.hpp NO_CACHE)
berth_need("tl-expected" libexpected-dev expected-devel tl-expected_FOUND TL_EXPECTED_HEADERS)
find_path(TOMLPLUSPLUS_HEADERS toml++/toml.h NO_CACHE)
berth_need("toml++" libtomlplusplus-dev tomlplusplus-devel TOMLPLUSPLUS_HEADERS)

# Libraries that are linked: the static library, or the shared one of a distribution that has no other.
find_library(HIREDIS NAMES libhiredis.a hiredis NO_CACHE)
find_path(HIREDIS_HEADERS hiredis/read.h NO_CACHE)
berth_need("hiredis" libhiredis-dev hiredis-devel HIREDIS HIREDIS_HEADERS)
find_library(NCURSESW NAMES libncursesw.a ncursesw NO_CACHE)
find_library(TINFO NAMES libtinfo.a tinfo NO_CACHE)
find_path(NCURSES_HEADERS curses.h NO_CACHE)
berth_need("ncurses" libncurses-dev ncurses-devel NCURSESW TINFO NCURSES_HEADERS)

# Only headers: the packages of CMake need a compiler.
if(BERTH_TESTS)
  find_path(GTEST_HEADERS gtest/gtest.h NO_CACHE)
  berth_need("GoogleTest" libgtest-dev gtest-devel GTEST_HEADERS)
  find_path(RAPIDCHECK_HEADERS rapidcheck/gtest.h NO_CACHE)
  berth_need("rapidcheck" librapidcheck-dev rapidcheck-devel RAPIDCHECK_HEADERS)
endif()
if(BERTH_TESTS OR BERTH_BENCH OR BERTH_FUZZ)
  find_package(nlohmann_json QUIET)
  find_path(NLOHMANN_JSON_HEADERS nlohmann/json.hpp NO_CACHE)
  berth_need("nlohmann-json" nlohmann-json3-dev json-devel nlohmann_json_FOUND NLOHMANN_JSON_HEADERS)
endif()
if(BERTH_BENCH)
  find_path(BENCHMARK_HEADERS benchmark/benchmark.h NO_CACHE)
  berth_need("Google Benchmark" libbenchmark-dev google-benchmark-devel BENCHMARK_HEADERS)
endif()

if(BERTH_PYTHON)
  find_package(Python 3.9 QUIET COMPONENTS Interpreter Development.Module)
  berth_need("the headers of Python" python3-dev python3-devel Python_FOUND)
  if(Python_EXECUTABLE)
    execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    berth_need("nanobind (run: pip install 'nanobind>=2.4,<3')" "" "" nanobind_ROOT)
  endif()
endif()

set(BERTH_MISSING "")
if(berth_missing_names)
  list(JOIN berth_missing_names ", " berth_missing_names)
  list(JOIN berth_apt_packages " " berth_apt_packages)
  list(JOIN berth_dnf_packages " " berth_dnf_packages)
  set(BERTH_MISSING "cannot build berth; not found: ${berth_missing_names}")
  cmake_host_system_information(RESULT berth_host QUERY DISTRIB_INFO)
  if(NOT berth_apt_packages)
  elseif("${berth_host_ID} ${berth_host_ID_LIKE}" MATCHES "debian|ubuntu")
    string(APPEND BERTH_MISSING "; run as root: apt-get install ${berth_apt_packages}")
  elseif("${berth_host_ID} ${berth_host_ID_LIKE}" MATCHES "fedora|rhel")
    string(APPEND BERTH_MISSING "; run as root: dnf install ${berth_dnf_packages}")
  else()
    string(APPEND BERTH_MISSING "; install the equivalent of these packages of Debian: ${berth_apt_packages}")
  endif()
endif()
