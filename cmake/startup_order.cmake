# Places the functions of cmake/startup_functions.txt beside each other. Otherwise a start touches every part of a large
# program, and the page faults take longer than the code (docs/testing.md).

# The linker script is the linker's own, with one line more for each function. Without GNU ld, which prints its script, the
# functions stay where they are.
file(STRINGS cmake/startup_functions.txt berth_startup_functions)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cmake/startup_functions.txt)
list(TRANSFORM berth_startup_functions REPLACE "(.+)" "*(.text.\\1)")
list(JOIN berth_startup_functions "\n    " berth_startup_functions)

# write_linker_script(KIND RESULT): KIND is the compiler's flag, -pie or -shared. RESULT is empty if there is no script.
function(write_linker_script kind result)
  set(${result} "" PARENT_SCOPE)
  # It links an empty program: a.out.
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${kind} -Wl,--verbose WORKING_DIRECTORY "${CMAKE_BINARY_DIR}"
    OUTPUT_VARIABLE output ERROR_QUIET)
  string(FIND "${output}" "*(.text.unlikely" begin)
  string(REGEX MATCH "\n=====+\n(.*)\n=====+\n" script "${output}")
  if(begin EQUAL -1 OR NOT script)
    return()
  endif()
  string(REPLACE "*(.text.unlikely" "${berth_startup_functions}\n    *(.text.unlikely" script "${CMAKE_MATCH_1}")
  set(path "${CMAKE_BINARY_DIR}/linker${kind}.ld")
  file(CONFIGURE OUTPUT "${path}" CONTENT "${script}" @ONLY)
  set(${result} "${path}" PARENT_SCOPE)
endfunction()

write_linker_script(-pie berth_program_script)
write_linker_script(-shared berth_library_script)

# berth_order_startup(NAME): for a program or a shared library.
function(berth_order_startup name)
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set(script "${berth_program_script}")
  else()
    set(script "${berth_library_script}")
  endif()
  if(script)
    target_link_options(${name} PRIVATE "-Wl,-T,${script}")
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS "${script}")
  endif()
endfunction()
