// What a `berth run` that was started by a batch tells it; see cli/run_teller.h.
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
class RunEvents {
 public:
  std::vector<RunEvent> take(std::string_view bytes);

 private:
  std::string rest_;
};

}  // namespace berth::batch
