// The files of web/ (the page of `berth serve`), which are embedded in the binary.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace berth::serve {

// The views refer to constants of the program: they stay valid, and every thread may read them.
struct Asset {
  std::string_view content;
  std::string_view content_type;  // for the header Content-Type
  std::string_view tag;           // hash of the content; the header ETag has it in quotes
};

struct WebFile {
  std::string_view path;  // of the URL: "/app.js"
  Asset asset;
};

// Every file of web/. cmake/embed.cmake generates this function.
std::span<const WebFile> web_files();

// The file for the path of a URL, without its query; "/" is the page. The path is only compared
// with the names of the files, never resolved, so no other file can be reached.
std::optional<Asset> find_asset(std::string_view path);

}  // namespace berth::serve
