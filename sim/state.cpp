// The shared state file of a simulated server; see state.h.
#include "sim/state.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/simulation.h"
#include "base/text.h"

namespace berth::sim {
namespace {

constexpr std::uint64_t kMagic = 0x32306d6973687462;  // must change with the layout
constexpr std::size_t kMaxSlots = 1024;
constexpr std::size_t kMaxUnits = kMaxCards * kUnitsPerCard;

// The lock bytes are far behind the data: a byte need not exist to be locked.
constexpr off_t kLockOffset = off_t{1} << 40;
constexpr off_t kGlobalByte = kLockOffset;
// The owner of a slot holds its claim byte from before it clears the slot.
constexpr off_t kClaimBytes = kLockOffset + 4096;
// The owner of a slot holds its live byte from the moment when the content of the slot is valid.
constexpr off_t kLiveBytes = kLockOffset + 8192;

// The PID for a process that is outside the reader's PID namespace, plus the number of its slot: it
// is above the largest PID of Linux, and different for each process.
constexpr pid_t kInvisiblePid = 6'000'001;

using Counter = std::atomic<std::uint64_t>;
static_assert(Counter::is_always_lock_free, "the file is shared by processes");

struct UnitUse {
  Counter memory;  // including contexts
  std::atomic<std::uint32_t> contexts;
  std::atomic<std::uint32_t> utilization;
};

struct flock make_lock(short type, off_t start, off_t length = 1) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

bool try_lock(int fd, off_t byte) {
  struct flock lock = make_lock(F_WRLCK, byte);
  return ::fcntl(fd, F_SETLK, &lock) == 0;
}

// Held by at most one process of the host at a time.
class GlobalLock {
 public:
  explicit GlobalLock(int fd) : fd_(fd) {
    struct flock lock = make_lock(F_WRLCK, kGlobalByte);
    while (::fcntl(fd_, F_SETLKW, &lock) != 0 && errno == EINTR) {
    }
  }
  ~GlobalLock() {
    struct flock lock = make_lock(F_UNLCK, kGlobalByte);
    ::fcntl(fd_, F_SETLK, &lock);
  }
  GlobalLock(const GlobalLock&) = delete;
  GlobalLock& operator=(const GlobalLock&) = delete;

 private:
  int fd_;
};

std::uint64_t boot_clock() {
  struct timespec now {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// A number that differs for each boot; 0 if it is unknown.
std::uint64_t boot_number() {
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::array<char, 64> text{};
  const auto length = ::read(fd, text.data(), text.size());
  ::close(fd);
  return length > 0 ? hash_text({text.data(), static_cast<std::size_t>(length)}) : 0;
}

tl::unexpected<Error> refuse(const std::string& path, std::string_view why) {
  return fail(ErrorKind::io,
              fmt::format("BERTH_SIM: the state file {} {}; set BERTH_SIM_STATE to another path",
                          in_quotes(path), why));
}

}  // namespace

struct StateSlot {
  Counter generation;  // incremented by each owner; if it changes, a reader must read again
  std::array<UnitUse, kMaxUnits> units;
};

struct StateLayout {
  std::uint64_t magic;
  Counter boot;   // the boot that `start` belongs to
  Counter start;  // CLOCK_BOOTTIME when the server started
  std::atomic<std::uint32_t> slots_ever_used;
  // Both are 0 in files of earlier versions, which had no use for these bytes.
  Counter init_calls;
  std::array<Counter, kMaxCards> process_lists;
  alignas(4096) std::array<StateSlot, kMaxSlots> slots;
};

Result<StateFile*> StateFile::map_file(int fd, const std::string& path) {
  // A file with a problem is not a state file in use, so that closing it loses no lock.
  const auto close_and_refuse = [&](std::string_view why) {
    ::close(fd);
    return refuse(path, why);
  };
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return close_and_refuse("is not a regular file");
  if (info.st_size != static_cast<off_t>(sizeof(StateLayout))) {
    return close_and_refuse("has the wrong size");
  }
  void* memory = ::mmap(nullptr, sizeof(StateLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return close_and_refuse(fmt::format("cannot be mapped ({})", std::strerror(errno)));
  auto* layout = static_cast<StateLayout*>(memory);
  if (layout->magic != kMagic) {
    ::munmap(memory, sizeof(StateLayout));
    return close_and_refuse("was not made by this version of the simulated driver");
  }
  auto* file = new StateFile(fd, layout);
  file->update_boot();
  return file;
}

namespace {

// Creates a complete file and then links it to its name, so that no process sees an incomplete one.
// -1 with EEXIST if another process was first.
int create_file(const std::string& path) {
  std::string draft = path + ".XXXXXX";
  const int fd = ::mkostemp(draft.data(), O_CLOEXEC);
  if (fd < 0) return -1;
  const std::array<std::uint64_t, 3> header{kMagic, boot_number(), boot_clock()};
  // Users with different umasks share the file.
  const bool good =
      ::fchmod(fd, 0666) == 0 && ::ftruncate(fd, sizeof(StateLayout)) == 0 &&
      ::write(fd, header.data(), sizeof(header)) == static_cast<ssize_t>(sizeof(header)) &&
      ::link(draft.c_str(), path.c_str()) == 0;
  const int reason = errno;
  ::unlink(draft.c_str());
  if (good) return fd;
  ::close(fd);
  errno = reason;
  return -1;
}

int open_file(const std::string& path) {
  // First without O_CREAT: in a sticky directory the kernel refuses O_CREAT on another user's file.
  // In a loop, because another process may create or remove the file in between.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 || errno != ENOENT) return fd;
    const int created = create_file(path);
    if (created >= 0 || errno != EEXIST) return created;
  }
  return -1;
}

}  // namespace

Result<StateFile*> StateFile::open(const std::string& path) {
  struct OpenFiles {
    Mutex mutex;
    std::vector<std::pair<std::string, StateFile*>> files GUARDED_BY(mutex);
  };
  static auto& open_files = *new OpenFiles;
  const MutexLock guard(open_files.mutex);
  for (const auto& [known, file] : open_files.files) {
    if (known == path && file->is_still_at(path)) return file;
  }
  const StandardDescriptorGuard standard;  // the file must not become stdout or stderr
  const int fd = open_file(path);
  if (fd < 0) return refuse(path, fmt::format("cannot be opened ({})", std::strerror(errno)));
  auto file = map_file(fd, path);
  if (file) open_files.files.emplace_back(path, *file);
  return file;
}

bool StateFile::is_still_at(const std::string& path) const {
  struct stat named {};
  struct stat held {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd_, &held) == 0 &&
         named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

void StateFile::update_boot() {
  const std::uint64_t boot = boot_number();
  if (layout_->boot == boot) return;
  const GlobalLock guard(fd_);
  // Another process may have updated it meanwhile.
  // cppcheck-suppress identicalConditionAfterEarlyExit
  if (layout_->boot == boot) return;
  layout_->start = boot_clock();
  layout_->init_calls = 0;
  for (Counter& lists : layout_->process_lists) lists = 0;
  layout_->boot = boot;
}

std::chrono::nanoseconds StateFile::uptime() const {
  const std::uint64_t now = boot_clock();
  const std::uint64_t start = layout_->start;
  return std::chrono::nanoseconds{now > start ? static_cast<std::int64_t>(now - start) : 0};
}

std::uint64_t StateFile::init_calls() const {
  return layout_->init_calls;
}

void StateFile::count_init_call() {
  ++layout_->init_calls;
}

std::uint64_t StateFile::process_lists(std::size_t card) const {
  return layout_->process_lists[card];
}

void StateFile::count_process_list(std::size_t card) {
  ++layout_->process_lists[card];
}

// Appends the use of `card` by the slot's owner, if it has one.
void StateFile::read_slot(std::size_t index, std::size_t card,
                          std::vector<ProcessUse>& uses) const {
  const StateSlot& slot = layout_->slots[index];
  const UnitUse* const units = &slot.units[card * kUnitsPerCard];
  const std::size_t before = uses.size();
  for (;;) {
    uses.resize(before);
    const std::uint64_t generation = slot.generation;
    // Most slots use no unit of the card, whether their owners live or not.
    if (std::none_of(units, units + kUnitsPerCard,
                     [](const UnitUse& use) { return use.contexts > 0; }))
      return;
    // F_OFD_GETLK, because it also reports the locks of this process itself.
    struct flock lock = make_lock(F_WRLCK, kLiveBytes + static_cast<off_t>(index));
    if (::fcntl(fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return;
    // The kernel reports no PID for a process outside this PID namespace.
    const pid_t pid = lock.l_pid > 0 ? lock.l_pid : kInvisiblePid + static_cast<pid_t>(index);
    for (std::size_t i = 0; i < kUnitsPerCard; ++i) {
      const UnitUse& use = units[i];
      if (use.contexts == 0) continue;
      const Unit unit{card, i == 0 ? std::nullopt : std::optional(i - 1)};
      uses.push_back({pid, unit, use.memory, use.utilization});
    }
    if (slot.generation == generation) return;
  }
}

std::vector<ProcessUse> StateFile::uses_on(std::size_t card) const {
  std::vector<ProcessUse> uses;
  const std::size_t slots = std::min<std::size_t>(layout_->slots_ever_used, kMaxSlots);
  for (std::size_t i = 0; i < slots; ++i) read_slot(i, card, uses);
  return uses;
}

bool StateFile::claim_slot() {
  if (slot_ != nullptr) return true;
  for (std::size_t i = 0; i < kMaxSlots; ++i) {
    if (!try_lock(fd_, kClaimBytes + static_cast<off_t>(i))) continue;
    // Writing to a page for which the disk has no room would kill this process (SIGBUS).
    const auto offset = offsetof(StateLayout, slots) + i * sizeof(StateSlot);
    if (::posix_fallocate(fd_, static_cast<off_t>(offset), sizeof(StateSlot)) != 0) return false;
    StateSlot& slot = layout_->slots[i];
    ++slot.generation;
    for (UnitUse& use : slot.units) {
      use.contexts = 0;
      use.memory = 0;
      use.utilization = 0;
    }
    // Updated before the live byte is locked, so that readers do not miss a live slot.
    std::uint32_t ever = layout_->slots_ever_used;
    while (ever < i + 1 && !layout_->slots_ever_used.compare_exchange_weak(
                               ever, static_cast<std::uint32_t>(i + 1))) {
    }
    if (!try_lock(fd_, kLiveBytes + static_cast<off_t>(i))) return false;
    slot_ = &slot;
    return true;
  }
  return false;
}

StateFile::Outcome StateFile::add(const Unit& unit, std::uint64_t memory, std::uint32_t contexts,
                                  const Limits& limits) {
  const MutexLock guard(mutex_);
  if (!claim_slot()) return Outcome::no_slot;
  const GlobalLock lock(fd_);
  std::uint64_t used = 0;
  bool has_other_process = false;
  std::vector<ProcessUse> uses;
  const std::size_t slots = std::min<std::size_t>(layout_->slots_ever_used, kMaxSlots);
  for (std::size_t i = 0; i < slots; ++i) {
    const std::size_t before = uses.size();
    read_slot(i, unit.card, uses);
    has_other_process = has_other_process || (uses.size() > before && &layout_->slots[i] != slot_);
  }
  for (const ProcessUse& use : uses) used += use.unit == unit ? use.memory : 0;
  if (limits.exclusive_card && has_other_process) return Outcome::busy;
  if (used > limits.memory || memory > limits.memory - used) return Outcome::no_memory;
  UnitUse& own = slot_->units[unit_number(unit)];
  own.memory += memory;
  own.contexts += contexts;
  return Outcome::done;
}

StateFile::Outcome StateFile::add_context(const Unit& unit, std::uint64_t memory,
                                          const Limits& limits) {
  return add(unit, memory, 1, limits);
}

StateFile::Outcome StateFile::add_memory(const Unit& unit, std::uint64_t memory,
                                         const Limits& limits) {
  return add(unit, memory, 0, limits);
}

void StateFile::remove_context(const Unit& unit, std::uint64_t memory) {
  const MutexLock guard(mutex_);
  if (slot_ == nullptr) return;
  UnitUse& own = slot_->units[unit_number(unit)];
  own.memory -= memory;
  if (--own.contexts == 0) own.utilization = 0;
}

void StateFile::remove_memory(const Unit& unit, std::uint64_t memory) {
  const MutexLock guard(mutex_);
  if (slot_ != nullptr) slot_->units[unit_number(unit)].memory -= memory;
}

void StateFile::set_utilization(const Unit& unit, unsigned percent) {
  const MutexLock guard(mutex_);
  if (slot_ != nullptr) slot_->units[unit_number(unit)].utilization = percent;
}

}  // namespace berth::sim
