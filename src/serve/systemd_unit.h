// The text of a systemd unit that keeps `berth serve` running for the whole lab.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth::serve {

struct UnitOptions {
  std::string program;                   // this binary: an absolute path
  std::vector<std::string> arguments{};  // of `berth serve`, as they were given
  std::string user;                      // who serves; root is not needed, and nobody's rights do
  std::string harbour{};                 // BERTH_DIR, if it was set
  bool allow_changes = false;            // it may write into the harbour
};

std::string format_unit(const UnitOptions& options);

// As whom: whoever asks, but never root.
std::string choose_unit_user();

// A word in a unit: quoted where needed, and nothing in it means anything else.
enum class UnitContext { command, setting };
std::string quote_unit_word(std::string_view text, UnitContext context);

}  // namespace berth::serve
