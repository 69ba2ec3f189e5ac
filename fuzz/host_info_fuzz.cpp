// What a host tells the others of its GPUs, through Redis.
#include "cluster/store/host_info.h"
#include "fuzz/fuzz.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto card = read_card(input);
  if (!card) {
    check(is_printable(card.error().message), "the error is printable");
    return;
  }
  HostView scene;
  scene.gpus = card->gpus;
  const std::string written = write_card(scene, card->driver, card->simulated);
  const auto again = read_card(written);
  check(again.has_value(), "what was read can be written and read again");
  HostView same;
  same.gpus = again->gpus;
  check(write_card(same, again->driver, again->simulated) == written, "writing keeps every field");
}

}  // namespace berth
