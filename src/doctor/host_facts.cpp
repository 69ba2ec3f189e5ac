// Facts from /proc, limits and tmpfiles.d; see surroundings.h.
#include "doctor/host_facts.h"

#include <array>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <map>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "archive/folder.h"
#include "base/environment.h"
#include "base/pid_namespace.h"
#include "base/process.h"
#include "base/users.h"
#include "harbour/tmpfiles.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<std::uint64_t> limit(rlim_t value) {
  return value == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(value);
}

bool keeps(const fs::path& folder, const std::string& path) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".conf" && keeps_from_cleaning(text_of(entry.path()), path)) {
      return true;
    }
  }
  return false;
}

std::map<std::string, std::string> environment_of(const fs::path& process) {
  std::map<std::string, std::string> variables;
  std::ifstream file(process / "environ", std::ios::binary);
  std::string entry;
  while (std::getline(file, entry, '\0')) {
    const auto equals = entry.find('=');
    if (entry.starts_with("BERTH_") && equals != std::string::npos) {
      variables[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  return variables;
}

}  // namespace

LimitFacts look_at_limits() {
  LimitFacts facts;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) facts.descriptors = limit(files.rlim_max);
  rlimit processes{};
  if (::geteuid() != 0 && ::getrlimit(RLIMIT_NPROC, &processes) == 0) {
    facts.processes = limit(processes.rlim_cur);
  }
  std::ifstream file("/proc/sys/fs/inotify/max_user_instances");
  std::uint64_t instances = 0;
  if (file >> instances) facts.inotify_instances = instances;
  return facts;
}

ProcFacts look_at_proc() {
  ProcFacts facts;
  facts.there = ::access("/proc/self/status", R_OK) == 0;
  facts.others_hidden = ::access("/proc/1/stat", R_OK) != 0;
  facts.hidepid = hidepid_option();
  facts.host_pids = in_host_pid_namespace();
  return facts;
}

LinkFacts look_at_links() {
  const auto is_on = [](const char* setting) {
    int value = 1;  // where it cannot be read, it has the value that systemd sets
    std::ifstream(setting) >> value;
    return value != 0;
  };
  return {is_on("/proc/sys/fs/protected_hardlinks"), is_on("/proc/sys/fs/protected_symlinks")};
}

ArchiveFacts look_at_archive(const HarbourLocation& where) {
  ArchiveFacts facts;
  facts.where = where;
  facts.path = archive_path(where);
  struct stat about {};
  facts.there = ::lstat(facts.path.c_str(), &about) == 0;
  facts.directory = S_ISDIR(about.st_mode);
  facts.owner = about.st_uid;
  facts.owner_name = user_name(about.st_uid);
  facts.mode = about.st_mode;
  if (!facts.there || !facts.directory) return facts;
  const std::string usual = fmt::format("{}/{}", facts.path, ::geteuid());
  if (::lstat(usual.c_str(), &about) == 0 && about.st_uid != ::geteuid()) {
    facts.planter = user_name(about.st_uid);
  }
  const auto own = existing_folder(facts.path);
  const std::string& folder = own ? own->path : facts.path;
  facts.writable = ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) == 0) {
    facts.space = Bytes{static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize};
  }
  return facts;
}

CleaningFacts look_at_cleaning(const HarbourLocation& where) {
  CleaningFacts facts;
  facts.where = where;
  const bool temporary = where.path.starts_with("/tmp/") || where.path.starts_with("/var/tmp/");
  for (const char* program : {"/usr/bin/systemd-tmpfiles", "/bin/systemd-tmpfiles"}) {
    facts.cleaner = facts.cleaner || (temporary && ::access(program, X_OK) == 0);
  }
  for (const char* folder :
       {"/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d"}) {
    facts.kept = facts.kept || keeps(folder, where.path);
  }
  return facts;
}

std::vector<ForeignHolder> foreign_holders(const HarbourLocation& ours,
                                           const std::set<std::string>& known) {
  std::vector<ForeignHolder> holders;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid.size() > 10) continue;
    auto variables = environment_of(entry.path());
    const std::string& lease = variables["BERTH_LEASE"];
    if (lease.empty() || known.contains(lease)) continue;
    // Another simulated server has other GPUs.
    if (variables["BERTH_SIM"] != setting("BERTH_SIM") ||
        variables["BERTH_SIM_STATE"] != setting("BERTH_SIM_STATE")) {
      continue;
    }
    const std::string& chosen = variables["BERTH_DIR"];
    const std::string harbour = chosen.empty() ? default_harbour_location().path : chosen;
    if (harbour == ours.path) continue;  // its lease has ended
    std::string name;
    std::ifstream comm(entry.path() / "comm");
    std::getline(comm, name);
    holders.push_back({harbour, name, std::stoll(pid)});
  }
  return holders;
}

}  // namespace berth
