// Fuzzes descriptions of simulated servers (BERTH_SIM).
#include <algorithm>

#include "fuzz/fuzz.h"
#include "sim/server.h"

namespace berth {

void fuzz(std::string_view input) {
  const auto server = sim::parse_server(input, "server.json", "identity");
  if (!server) {
    check(is_printable(server.error().message), "the error is printable");
    check(server.error().message.size() < 2000, "the error is short");
    return;
  }
  const auto& cards = server->cards;
  check(!cards.empty() && cards.size() <= sim::kMaxCards, "the number of cards is bounded");
  check(std::is_sorted(cards.begin(), cards.end(),
                       [](const auto& a, const auto& b) { return a.pci < b.pci; }),
        "cards are in PCI order");
  for (const sim::Card& card : cards) {
    check(!card.uuid.empty() && !card.name.empty(), "each card has a UUID and a name");
    check(card.reserved_memory <= card.memory, "no more memory is reserved than there is");
    check(card.instances.size() <= sim::kMaxInstances, "the number of instances is bounded");
    check(is_printable(card.name), "names are printable");
  }
  for (const sim::Stranger& stranger : server->strangers) {
    check(stranger.unit.card < cards.size(), "a stranger is on an existing card");
    check(is_printable(stranger.name), "names are printable");
  }
  for (const sim::Fault& fault : server->faults) {
    check(!fault.card || *fault.card < cards.size(), "a fault names an existing card");
  }
}

}  // namespace berth
