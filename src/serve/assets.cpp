// Finds an embedded file by its path; see assets.h.
#include "serve/assets.h"

namespace berth::serve {

std::optional<Asset> find_asset(std::string_view path) {
  if (path == "/") path = "/index.html";
  for (const WebFile& file : web_files()) {
    if (file.path == path) return file.asset;
  }
  return std::nullopt;
}

}  // namespace berth::serve
