// Fuzzes snapshots from the helper process in which the driver's code runs.
#include <string>

#include "devices/wire.h"
#include "fuzz/fuzz.h"

namespace berth {
namespace {

template <class T>
void fuzz_as(std::string_view input) {
  const auto result = wire::unpack<T>(input);
  if (result) check(wire::pack(*result) == input, "each value has only one encoding");
}

}  // namespace

void fuzz(std::string_view input) {
  fuzz_as<Snapshot>(input);
  fuzz_as<Topology>(input);
  fuzz_as<std::vector<GpuSample>>(input);
}

}  // namespace berth
