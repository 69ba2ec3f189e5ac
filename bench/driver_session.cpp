// The shortest possible session with the driver: the yardstick for what berth adds to its start.
//
// - driver_session LIBRARY: loads the library, starts a session and ends it
// - driver_session LIBRARY count: prints how often the simulated driver was initialised so far
#include <cstdio>
#include <dlfcn.h>
#include <string_view>

namespace {

template <class Function>
Function find_function(void* library, const char* name) {
  void* const found = library != nullptr ? ::dlsym(library, name) : nullptr;
  if (found == nullptr) std::fprintf(stderr, "driver_session: %s\n", ::dlerror());
  return reinterpret_cast<Function>(found);
}

int run_session(void* library) {
  const auto init = find_function<int (*)()>(library, "nvmlInit_v2");
  const auto shutdown = find_function<int (*)()>(library, "nvmlShutdown");
  return init != nullptr && shutdown != nullptr && init() == 0 && shutdown() == 0 ? 0 : 1;
}

int print_count(void* library) {
  const auto count = find_function<unsigned long long (*)()>(library, "berth_sim_init_calls");
  if (count == nullptr) return 1;
  std::printf("%llu\n", count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  void* const library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  return argc > 2 && std::string_view(argv[2]) == "count" ? print_count(library)
                                                          : run_session(library);
}
