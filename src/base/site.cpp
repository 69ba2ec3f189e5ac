// Reading of the site's files; see site.h.
#include "base/site.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

// The compiled form is a shared library, which a user's host need not have.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/environment.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/users.h"

namespace berth {
namespace {

constexpr const char* kSiteFile = "/etc/berth.toml";
constexpr std::size_t kLargestFile = std::size_t{64} << 10;
constexpr std::string_view kFileScheme = "file:";

struct FileText {
  std::string text;
  struct stat about {};
};

// Nothing if there is no such file.
Result<std::optional<FileText>> read_file(const std::string& path) {
  const auto cannot = [&path](std::string_view why) {
    return fail(ErrorKind::harbour, fmt::format("cannot read {}: {}", in_quotes(path), why));
  };
  // Without waiting: it might be a pipe.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  FileText read;
  if (!file) {
    const int reason = errno;
    if (reason == ENOENT || reason == ENOTDIR) return std::nullopt;
    return cannot(std::strerror(reason));
  }
  if (::fstat(file.get(), &read.about) != 0) return cannot(std::strerror(errno));
  if (!S_ISREG(read.about.st_mode)) return cannot("it is no regular file");
  read.text.resize(kLargestFile + 1);
  const ssize_t size = ::read(file.get(), read.text.data(), read.text.size());
  if (size < 0) return cannot(std::strerror(errno));
  if (static_cast<std::size_t>(size) > kLargestFile) return cannot("it is larger than 64 KiB");
  read.text.resize(static_cast<std::size_t>(size));
  return read;
}

// Whether somebody else could read, or change, what is in the file.
bool is_open_to_others(const struct stat& about) {
  const bool owned = about.st_uid == ::geteuid() || about.st_uid == 0;
  return !owned || (about.st_mode & S_IRWXO) != 0;
}

// What to do about it, behind "; ".
std::string remedy(const std::string& path, const struct stat& about) {
  const bool owned = about.st_uid == ::geteuid() || about.st_uid == 0;
  if (owned) return fmt::format("chmod o= {}", in_quotes(path));
  return fmt::format("it belongs to {}, and should to you or to root", user_name(about.st_uid));
}

// Before the last @, since one may have forgotten to write that in a password as %40.
bool has_password(std::string_view url) {
  const auto scheme = url.find("://");
  const auto at = url.rfind('@');
  if (scheme == std::string_view::npos || at == std::string_view::npos || at < scheme) return false;
  return url.substr(scheme + 3, at - scheme - 3).find(':') != std::string_view::npos;
}

struct Setting {
  std::string value;
  std::string source;
};

struct Settings {
  std::optional<Setting> url;
  std::optional<Setting> host;
};

// Takes from the file what `settings` has not yet.
Result<void> add_file(const std::string& path, Settings& settings) {
  const auto file = read_file(path);
  if (!file) return tl::make_unexpected(file.error());
  if (!*file) return {};
  const auto wrong = [&path](const toml::source_region& where, std::string_view problem) {
    return fail(ErrorKind::usage,
                fmt::format("{}, line {}: {}", printable(path), where.begin.line, problem));
  };
  const toml::parse_result parsed = toml::parse((*file)->text, path);
  if (!parsed) {
    // Without the parser's words, which quote the line: it may have a password in it.
    return wrong(parsed.error().source(), "this is not TOML; write KEY = \"VALUE\"");
  }
  for (const auto& [key, node] : parsed.table()) {
    const bool is_url = key == "url";
    if (!is_url && key != "host") {
      return wrong(key.source(), fmt::format("there is no setting {}; there are url and host",
                                             in_quotes(key.str())));
    }
    const auto* text = node.as_string();
    if (text == nullptr) {
      return wrong(key.source(),
                   fmt::format("{0} is not in quotes; write {0} = \"VALUE\"", key.str()));
    }
    if (is_url && has_password(text->get()) && is_open_to_others((*file)->about)) {
      return fail(ErrorKind::harbour,
                  fmt::format("{}, line {}: others can read the password in the URL; write url = "
                              "\"file:/etc/berth.url\", and the URL into that file of mode 0640 or "
                              "0600",
                              printable(path), key.source().begin.line));
    }
    auto& setting = is_url ? settings.url : settings.host;
    if (!setting) setting = Setting{text->get(), path};
  }
  return {};
}

// Nothing if there is no such file, or none that this user could see: HOME may be another's, as it
// is with sudo.
std::optional<std::string> users_file() {
  std::string folder(setting("XDG_CONFIG_HOME"));
  if (!folder.starts_with('/')) {  // as its specification has it
    if (setting("HOME").empty()) return std::nullopt;
    folder = fmt::format("{}/.config", setting("HOME"));
  }
  std::string path = fmt::format("{}/berth.toml", folder);
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return std::nullopt;
  return path;
}

std::string kernels_host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Result<std::string> host_of(const Settings& settings, bool has_url) {
  Setting chosen{std::string(setting("BERTH_HOST")), "BERTH_HOST"};
  if (chosen.value.empty() && settings.host) chosen = *settings.host;
  if (chosen.value.empty()) chosen = {kernels_host_name(), "gethostname()"};
  if (is_host_name(chosen.value)) return chosen.value;
  // Who shares nothing with other hosts needs no name among them.
  if (!has_url && chosen.source == "gethostname()") return "localhost";
  return fail(
      ErrorKind::usage,
      fmt::format("this host's name, {} by {}, is not of 1 to {} letters, digits, and -_.; "
                  "set BERTH_HOST, or host in {}",
                  in_quotes(chosen.value), printable(chosen.source), kLongestHostName, kSiteFile));
}

}  // namespace

bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestHostName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

Result<std::string> url_behind(const std::string& url, std::string& source) {
  if (!url.starts_with(kFileScheme)) return url;
  std::string path = url.substr(kFileScheme.size());
  if (path.starts_with("///")) path.erase(0, 2);  // file:///etc/berth.url
  if (!path.starts_with('/') || path.starts_with("//")) {
    return fail(ErrorKind::usage,
                fmt::format("{} has a file: URL without a whole path; write file:/PATH",
                            printable(source)));
  }
  const auto file = read_file(path);
  if (!file) return tl::make_unexpected(file.error());
  if (!*file) {
    return fail(ErrorKind::harbour, fmt::format("there is no file {}, which {} names; write the "
                                                "Redis URL into it, and give it mode 0600",
                                                in_quotes(path), printable(source)));
  }
  if (is_open_to_others((*file)->about)) {
    return fail(ErrorKind::harbour,
                fmt::format("others can read or replace the Redis URL in {}; {}", in_quotes(path),
                            remedy(path, (*file)->about)));
  }
  std::string line = (*file)->text.substr(0, (*file)->text.find('\n'));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) {
    line.pop_back();
  }
  if (line.empty() || line.starts_with(kFileScheme)) {
    return fail(ErrorKind::usage,
                fmt::format("the first line of {} is no Redis URL; write redis://HOST:PORT/DB",
                            in_quotes(path)));
  }
  source = path;
  return line;
}

Result<Site> site() {
  Settings settings;
  if (const auto given = variable("BERTH_URL")) {
    settings.url = Setting{std::string(*given), "BERTH_URL"};
  }
  std::string sites_file(setting("BERTH_SITE_FILE"));
  if (sites_file.empty()) sites_file = kSiteFile;
  for (const auto& path : {users_file(), std::optional(sites_file)}) {
    if (!path) continue;
    if (auto good = add_file(*path, settings); !good) return tl::make_unexpected(good.error());
  }
  Site site;
  if (settings.url) {
    site.url_source = settings.url->source;
    auto url = url_behind(settings.url->value, site.url_source);
    if (!url) return tl::make_unexpected(url.error());
    site.url = std::move(*url);
  }
  auto host = host_of(settings, !site.url.empty());
  if (!host) return tl::make_unexpected(host.error());
  site.host = std::move(*host);
  return site;
}

}  // namespace berth
