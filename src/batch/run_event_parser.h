// What a `berth run` that was started by a batch tells it; see run/run_event_writer.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace berth::batch {

struct RunEvent {
  enum class Kind : std::uint8_t { waiting, notice, granted, ended };
  Kind kind{};
  std::string text{};   // of waiting: why; of notice
  std::string lease{};  // of granted
  std::string gpus{};   // of granted: "0,1"
  bool out_of_memory = false;
};

// Takes bytes as they come; gives the events that are whole by now. What is none is left out.
class RunEventParser {
 public:
  std::vector<RunEvent> parse_bytes(std::string_view bytes);

 private:
  std::string buffer_;
};

}  // namespace berth::batch
