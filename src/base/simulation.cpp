// Identifies the simulated server; see simulation.h.
#include "base/simulation.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>

#include "base/environment.h"

namespace berth {

bool is_sim_shorthand(std::string_view sim) {
  const auto digits = sim.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string_view::npos && sim[digits] == 'x' &&
         !sim.ends_with(".json") && sim.find('/') == std::string_view::npos;
}

std::string simulated_state_path() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::string state(get_env_or_empty("BERTH_SIM_STATE"));
  if (!state.empty()) {
    const auto absolute = fs::absolute(state, ignored);
    return ignored ? state : absolute.lexically_normal().string();
  }
  std::string name(get_env_or_empty("BERTH_SIM"));
  if (!is_sim_shorthand(name)) {
    const auto real = fs::canonical(name, ignored);
    if (!ignored) name = real.string();
  }
  return fmt::format("/tmp/berth-sim-{:016x}.state", hash_text(name));
}

std::chrono::seconds audit_interval(std::chrono::seconds interval) {
  constexpr unsigned kMaxSeconds = 7 * 24 * 3600;  // poll() takes milliseconds in an int
  if (get_env_or_empty("BERTH_SIM").empty()) return interval;
  const auto text = get_env_or_empty("BERTH_SIM_AUDIT");
  unsigned seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) return interval;
  return std::chrono::seconds(std::clamp(seconds, 1U, kMaxSeconds));
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  // FNV-1a, then a finaliser. Without it, the hashes of texts that differ only in the last byte
  // begin with the same digits.
  std::uint64_t hash = 0xcbf29ce484222325 ^ (seed * 0x9e3779b97f4a7c15);
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

}  // namespace berth
