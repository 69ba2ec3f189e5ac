// Loading of the simulated server; see loader.h.
#include "sim/loader.h"

#include <memory>
#include <set>
#include <sys/stat.h>
#include <vector>

#include "base/mutex.h"
#include "base/simulation.h"

namespace berth::sim {
namespace {

// What changes when the server's description is edited, or its state file is replaced.
struct Stamp {
  Source source;
  long long description_time = 0;
  unsigned long long description_file = 0;
  unsigned long long state_file = 0;
  bool operator==(const Stamp&) const = default;
};

Stamp stamp_of(const Source& source) {
  Stamp stamp{source};
  struct stat about {};
  if (!is_short_form(source.sim) && ::stat(source.sim.c_str(), &about) == 0) {
    stamp.description_time = about.st_mtim.tv_sec * 1'000'000'000LL + about.st_mtim.tv_nsec;
    stamp.description_file = about.st_ino ^ (static_cast<unsigned long long>(about.st_size) << 40);
  }
  if (::lstat(source.state.c_str(), &about) == 0) stamp.state_file = about.st_ino;
  return stamp;
}

// Never destroyed: a machine may be in use by a thread when the program ends.
struct Cache {
  Mutex mutex;
  Stamp stamp GUARDED_BY(mutex);
  // The last is the current one.
  std::vector<std::unique_ptr<const Machine>> machines GUARDED_BY(mutex);
  std::set<std::string> problems GUARDED_BY(mutex);
};

}  // namespace

Load load_machine() noexcept {
  try {
    static auto& cache = *new Cache;
    const Source source = Source::from_environment();
    if (source.sim.empty()) return {.absent = true};
    const MutexLock guard(cache.mutex);
    if (!cache.machines.empty() && cache.stamp == stamp_of(source)) {
      return {.machine = cache.machines.back().get()};
    }
    auto loaded = Machine::load(source);
    if (!loaded) {
      const auto kept = cache.problems.insert(loaded.error().message).first;
      return {.problem = kept->c_str(), .usage = loaded.error().kind == ErrorKind::usage};
    }
    // The machine before stays, in case a call is still at work on it.
    cache.machines.push_back(std::make_unique<const Machine>(std::move(*loaded)));
    cache.stamp = stamp_of(source);
    return {.machine = cache.machines.back().get()};
  } catch (...) {
    return {.problem = "BERTH_SIM: not enough memory to read the description"};
  }
}

}  // namespace berth::sim
