// The text of a systemd unit that runs `berth serve` as a service of the host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth::serve {

struct UnitOptions {
  std::string program;                   // absolute path of this binary
  std::vector<std::string> arguments{};  // of `berth serve`
  std::string user;                      // runs the server; needs no rights, so not root
  std::string harbour{};                 // BERTH_DIR, if it is set
  bool allow_changes = false;            // the server needs write access to the harbour
};

std::string format_unit(const UnitOptions& options);

// The user of this process, as systemd accepts it; the user 'nobody' instead of root.
std::string choose_unit_user();

// Quotes and escapes a word so that systemd reads it literally, in ExecStart= (command) or in
// another setting.
enum class UnitContext { command, setting };
std::string quote_unit_word(std::string_view text, UnitContext context);

}  // namespace berth::serve
