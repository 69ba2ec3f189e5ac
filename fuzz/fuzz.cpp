// The entry point that libFuzzer calls; see fuzz.h.
#include "fuzz/fuzz.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"

namespace berth {

void check(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "this property does not hold: %s\n", property);
  std::abort();
}

bool is_printable(std::string_view text) {
  return printable(text) == text;
}

}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  berth::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
