// Loads and caches the simulated server; see loader.h.
#include "sim/loader.h"

#include <memory>
#include <set>
#include <sys/stat.h>
#include <vector>

#include "base/mutex.h"
#include "base/simulation.h"

namespace berth::sim {
namespace {

// Identifies one version of the description and the state file: it changes when the description is
// edited or the state file is replaced.
struct Stamp {
  ServerSource source;
  long long description_time = 0;
  unsigned long long description_file = 0;
  unsigned long long state_file = 0;
  bool operator==(const Stamp&) const = default;
};

Stamp make_stamp(const ServerSource& source) {
  Stamp stamp{source};
  struct stat info {};
  if (!is_sim_shorthand(source.sim) && ::stat(source.sim.c_str(), &info) == 0) {
    stamp.description_time = info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec;
    stamp.description_file = info.st_ino ^ (static_cast<unsigned long long>(info.st_size) << 40);
  }
  if (::lstat(source.state.c_str(), &info) == 0) stamp.state_file = info.st_ino;
  return stamp;
}

// Never destroyed: a thread may use a machine while the program exits.
struct Cache {
  Mutex mutex;
  Stamp stamp GUARDED_BY(mutex);
  // The last one is current.
  std::vector<std::unique_ptr<const Machine>> machines GUARDED_BY(mutex);
  std::set<std::string> problems GUARDED_BY(mutex);
};

}  // namespace

LoadResult load_machine() noexcept {
  try {
    static auto& cache = *new Cache;
    const ServerSource source = ServerSource::from_environment();
    if (source.sim.empty()) return {.absent = true};
    const MutexLock guard(cache.mutex);
    if (!cache.machines.empty() && cache.stamp == make_stamp(source)) {
      return {.machine = cache.machines.back().get()};
    }
    auto loaded = Machine::load(source);
    if (!loaded) {
      const auto kept = cache.problems.insert(loaded.error().message).first;
      return {.problem = kept->c_str(), .usage = loaded.error().kind == ErrorKind::usage};
    }
    // The previous machine stays in the cache: another thread may still use it.
    cache.machines.push_back(std::make_unique<const Machine>(std::move(*loaded)));
    cache.stamp = make_stamp(source);
    return {.machine = cache.machines.back().get()};
  } catch (...) {
    return {.problem = "BERTH_SIM: not enough memory to read the description"};
  }
}

}  // namespace berth::sim
