// Job specs as JSON, and the environment of a remote job; see remote_job_spec.h.
#include "cluster/remote/remote_job_spec.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_fields.h"
#include "base/quantity.h"
#include "base/read_file.h"
#include "base/text.h"
#include "base/unique_fd.h"

extern char** environ;

namespace berth {
namespace {

constexpr std::size_t kMaxSpecSize = 16 << 20;  // more than an environment and a command line take

// JSON is UTF-8, but a command need not be: each byte becomes the code point of the same value.
std::string bytes_to_text(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xC0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return text;
}

std::string text_to_bytes(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80 || i + 1 == text.size()) {
      bytes += text[i];
    } else {
      const auto second = static_cast<unsigned char>(text[++i]);
      bytes += static_cast<char>(((first & 0x03) << 6) | (second & 0x3F));
    }
  }
  return bytes;
}

Result<std::string> read_private_file(const std::string& path) {
  const auto wrong = [&](std::string_view why) {
    return fail(ErrorKind::usage,
                fmt::format("run: cannot read the job spec {}: {}", in_quotes(path), why));
  };
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return wrong(std::strerror(errno));
  struct stat file_status {};
  if (::fstat(file.get(), &file_status) != 0) return wrong(std::strerror(errno));
  if (!S_ISREG(file_status.st_mode) || file_status.st_uid != ::geteuid() ||
      (file_status.st_mode & 077) != 0) {
    return wrong("the file must belong to you, and other users must not have access (mode 0600)");
  }
  auto content = read_to_end(file.get(), kMaxSpecSize);
  if (content) return std::move(*content);
  return wrong(errno == EFBIG
                   ? fmt::format("the file is larger than {}", format_size({kMaxSpecSize}))
                   : std::strerror(errno));
}

// Variables of this host, terminal or session, which would be wrong on another host.
bool is_host_specific(std::string_view name) {
  constexpr std::array<std::string_view, 16> names{"CUDA_VISIBLE_DEVICES",
                                                   "NVIDIA_VISIBLE_DEVICES",
                                                   "HOSTNAME",
                                                   "PWD",
                                                   "OLDPWD",
                                                   "SHLVL",
                                                   "TERM",
                                                   "DISPLAY",
                                                   "XAUTHORITY",
                                                   "TMUX",
                                                   "STY",
                                                   "WINDOWID",
                                                   "HOME",
                                                   "USER",
                                                   "LOGNAME",
                                                   "_"};
  return name.starts_with("BERTH_") || name.starts_with("SSH_") || name.starts_with("XDG_") ||
         name.starts_with("DBUS_") || name.starts_with("TMUX") ||
         std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string format_job_spec(const RemoteJobSpec& spec) {
  Json environment = Json::array();
  for (const auto& [name, value] : spec.environment) {
    environment.push_back(Json::array({bytes_to_text(name), bytes_to_text(value)}));
  }
  Json command = Json::array();
  for (const std::string& word : spec.command) command.push_back(bytes_to_text(word));
  return to_sorted_json({{"host", spec.host},
                         {"ticket", spec.ticket},
                         {"sender", spec.sender},
                         {"directory", bytes_to_text(spec.directory)},
                         {"environment", std::move(environment)},
                         {"command", std::move(command)}});
}

Result<RemoteJobSpec> read_job_spec(const std::string& path) {
  const std::string content = TRY(read_private_file(path));
  const auto json = parse_json(content);
  const auto wrong = [&] {
    return fail(ErrorKind::usage,
                fmt::format("run: {} is not a job spec of berth", in_quotes(path)));
  };
  if (!json) return wrong();
  const auto text = [&](const char* key) {
    const Json* value = json->find(key);
    return value == nullptr ? nullptr : value->as_string();
  };
  const std::string* host = text("host");
  const std::string* ticket = text("ticket");
  const std::string* directory = text("directory");
  const Json::Array* environment = array_field(*json, "environment");
  const Json::Array* command = array_field(*json, "command");
  if (host == nullptr || ticket == nullptr || directory == nullptr || environment == nullptr ||
      command == nullptr || command->empty()) {
    return wrong();
  }
  RemoteJobSpec spec;
  spec.host = *host;
  spec.ticket = *ticket;
  if (const std::string* const sender = text("sender")) spec.sender = *sender;
  spec.directory = text_to_bytes(*directory);
  for (const Json& pair : *environment) {
    const Json::Array* both = pair.as_array();
    if (both == nullptr || both->size() != 2) return wrong();
    const std::string* name = both->front().as_string();
    const std::string* value = both->back().as_string();
    if (name == nullptr || value == nullptr) return wrong();
    spec.environment.emplace_back(text_to_bytes(*name), text_to_bytes(*value));
  }
  for (const Json& word : *command) {
    if (word.as_string() == nullptr) return wrong();
    spec.command.push_back(text_to_bytes(*word.as_string()));
  }
  return spec;
}

std::vector<std::string> copy_and_mask_arguments(int argc, char** argv) {
  constexpr std::string_view kFlag = "--env";
  std::vector<std::string> arguments(argv, argv + argc);
  for (std::size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    std::size_t begin = 0;  // where NAME=VALUE begins
    if (arguments[i].starts_with("--env=")) {
      begin = kFlag.size() + 1;
    } else if (arguments[i - 1] != kFlag) {
      continue;
    }
    const auto equals = arguments[i].find('=', begin);
    if (equals == std::string::npos) continue;
    std::fill(argv[i] + equals + 1, argv[i] + arguments[i].size(), '*');
  }
  return arguments;
}

Result<std::vector<std::pair<std::string, std::string>>> select_environment(
    const std::vector<std::string>& selectors) {
  std::vector<std::pair<std::string, std::string>> selected;
  for (const std::string& selector : selectors) {
    const auto equals = selector.find('=');
    if (equals == 0 || selector.empty()) {
      return fail(ErrorKind::usage, fmt::format("run: --env {}: write NAME, NAME=VALUE or PREFIX*",
                                                in_quotes(selector)));
    }
    if (equals != std::string::npos) {
      selected.emplace_back(selector.substr(0, equals), selector.substr(equals + 1));
    } else if (selector.ends_with('*')) {
      const std::string_view prefix = std::string_view(selector).substr(0, selector.size() - 1);
      for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const std::string_view name = text.substr(0, text.find('='));
        if (name.size() == text.size() || !name.starts_with(prefix) || is_host_specific(name))
          continue;
        selected.emplace_back(name, text.substr(name.size() + 1));
      }
    } else if (const char* value = std::getenv(selector.c_str())) {
      selected.emplace_back(selector, value);
    } else {
      return fail(ErrorKind::usage,
                  fmt::format("run: --env {}: this variable is not set", in_quotes(selector)));
    }
  }
  return selected;
}

}  // namespace berth
