// Parses the events that a `berth run` writes for its batch; see run/run_event_writer.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace berth::batch {

struct RunEvent {
  enum class Kind : std::uint8_t { waiting, notice, granted, ended };
  Kind kind{};
  std::string text{};          // waiting: the reason; notice: the text; granted: with --mem auto,
                               // how much memory is reserved, and why
  std::string lease{};         // granted: the id
  std::string gpus{};          // granted: "0,1"
  bool out_of_memory = false;  // ended
  std::optional<TimePoint> starts{};  // waiting: the estimate
};

class RunEventParser {
 public:
  // Adds bytes as they were read, and returns the events that are now complete. Lines that are not
  // events are skipped.
  std::vector<RunEvent> parse_bytes(std::string_view bytes);

 private:
  std::string buffer_;
};

}  // namespace berth::batch
