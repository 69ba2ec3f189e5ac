// The page that `berth serve` shows, and what else lies in web/: files inside the binary.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace berth::serve {

// All of it lasts as long as the program, and any thread may read it.
struct Asset {
  std::string_view content;
  std::string_view content_type;  // for the header of that name
  std::string_view tag;           // of this content alone: for ETag, which wants it in quotes
};

struct WebFile {
  std::string_view path;  // as in the URL: "/app.js"
  Asset asset;
};

// Every file of web/; made by cmake/embed.cmake.
std::span<const WebFile> web_files();

// What a browser gets for a path without query: "/" is the page. Nothing else than the files of
// web/ is ever found: no path is resolved.
std::optional<Asset> find_asset(std::string_view path);

}  // namespace berth::serve
