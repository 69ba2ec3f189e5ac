# Embeds the files of web/ in the binary: berth_embed(LIBRARY FOLDER) adds a generated source to a library.
#
# As a script (cmake -DFILES=… -DOUTPUT=… -P embed.cmake) it writes that source. It has only constants: any
# compiler accepts them, and no constructor runs at the start of the program.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(berth_embed_script "${CMAKE_CURRENT_LIST_FILE}")

  function(berth_embed library folder)
    file(GLOB files CONFIGURE_DEPENDS "${folder}/*.html" "${folder}/*.css" "${folder}/*.js" "${folder}/*.json"
      "${folder}/*.svg")
    set(output "${CMAKE_CURRENT_BINARY_DIR}/web_files.cpp")
    string(REPLACE ";" "|" listed "${files}")
    add_custom_command(OUTPUT "${output}"
      COMMAND "${CMAKE_COMMAND}" "-DFILES=${listed}" "-DOUTPUT=${output}" -P "${berth_embed_script}"
      DEPENDS ${files} "${berth_embed_script}" COMMENT "Embedding the page" VERBATIM)
    target_sources(${library} PRIVATE "${output}")
  endfunction()
  return()
endif()

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_json "application/json")
set(type_svg "image/svg+xml")

set(constants "")
set(rows "")
set(number 0)
string(REPLACE "|" ";" FILES "${FILES}")
foreach(file IN LISTS FILES)
  cmake_path(GET file FILENAME name)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(extension STREQUAL "js")
    # Without comments and indentation, which are a quarter of the page.
    file(READ "${file}" text)
    string(REGEX REPLACE "/[*]([^*]|[*]+[^*/])*[*]+/" "" text "\n${text}")
    string(REGEX REPLACE "\n[ \n]*(//[^\n]*\n[ \n]*)*" "\n" text "${text}")
    string(REGEX REPLACE "^\n" "" text "${text}")
    string(HEX "${text}" bytes)
  else()
    file(READ "${file}" bytes HEX)
  endif()
  file(SHA256 "${file}" hash)
  string(SUBSTRING "${hash}" 0 16 tag)
  # As character literals: numbers above 127 would be narrowed, and compilers limit the length of string literals.
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND constants "constexpr char file_${number}[] = {${bytes}'\\0'};\n")
  string(APPEND rows "    {\"/${name}\", {{file_${number}, sizeof file_${number} - 1}, \"${type_${extension}}\", \"${tag}\"}},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(WRITE "${OUTPUT}" "// The files of web/, made by cmake/embed.cmake.
#include \"serve/assets.h\"

namespace berth::serve {
namespace {

${constants}
constexpr WebFile files[] = {
${rows}};

}  // namespace

std::span<const WebFile> web_files() { return files; }

}  // namespace berth::serve
")
