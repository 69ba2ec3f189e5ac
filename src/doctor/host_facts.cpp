// Reads facts from /proc, resource limits, tmpfiles.d and the archive; see host_facts.h.
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

#include "archive/user_folder.h"
#include "base/environment.h"
#include "base/process.h"
#include "base/users.h"
#include "harbour/tmpfiles.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<std::uint64_t> finite_limit(rlim_t value) {
  return value == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(value);
}

bool is_excluded_in(const fs::path& folder, const std::string& path) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".conf" &&
        excludes_from_cleaning(read_text(entry.path()), path)) {
      return true;
    }
  }
  return false;
}

std::map<std::string, std::string> read_berth_variables(const fs::path& process) {
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

LimitFacts collect_limits_facts() {
  LimitFacts facts;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) facts.descriptors = finite_limit(files.rlim_max);
  rlimit processes{};
  if (::geteuid() != 0 && ::getrlimit(RLIMIT_NPROC, &processes) == 0) {
    facts.processes = finite_limit(processes.rlim_cur);
  }
  std::ifstream file("/proc/sys/fs/inotify/max_user_instances");
  std::uint64_t instances = 0;
  if (file >> instances) facts.inotify_instances = instances;
  return facts;
}

ProcFacts collect_proc_facts() {
  ProcFacts facts;
  facts.exists = ::access("/proc/self/status", R_OK) == 0;
  facts.hides_other_users = ::access("/proc/1/stat", R_OK) != 0;
  facts.hidepid = read_hidepid_option();
  facts.has_host_pids = is_in_host_pid_namespace();
  return facts;
}

LinkFacts collect_links_facts() {
  const auto is_on = [](const char* setting) {
    int value = 1;  // if it cannot be read, assume the value that systemd sets
    std::ifstream(setting) >> value;
    return value != 0;
  };
  return {is_on("/proc/sys/fs/protected_hardlinks"), is_on("/proc/sys/fs/protected_symlinks")};
}

ArchiveFacts collect_archive_facts(const HarbourLocation& where) {
  ArchiveFacts facts;
  facts.where = where;
  facts.path = archive_path(where);
  struct stat attributes {};
  facts.exists = ::lstat(facts.path.c_str(), &attributes) == 0;
  facts.is_directory = S_ISDIR(attributes.st_mode);
  facts.owner = attributes.st_uid;
  facts.owner_name = user_name(attributes.st_uid);
  facts.mode = attributes.st_mode;
  if (!facts.exists || !facts.is_directory) return facts;
  const std::string usual = fmt::format("{}/{}", facts.path, ::geteuid());
  if (::lstat(usual.c_str(), &attributes) == 0 && attributes.st_uid != ::geteuid()) {
    facts.folder_taken_by = user_name(attributes.st_uid);
  }
  const auto own = find_own_folder(facts.path);
  const std::string& folder = own ? own->path : facts.path;
  facts.writable = ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) == 0) {
    facts.free_space = Bytes{static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize};
  }
  return facts;
}

CleaningFacts collect_cleaning_facts(const HarbourLocation& where) {
  CleaningFacts facts;
  facts.where = where;
  const bool temporary = where.path.starts_with("/tmp/") || where.path.starts_with("/var/tmp/");
  for (const char* program : {"/usr/bin/systemd-tmpfiles", "/bin/systemd-tmpfiles"}) {
    facts.cleaned_by_tmpfiles =
        facts.cleaned_by_tmpfiles || (temporary && ::access(program, X_OK) == 0);
  }
  for (const char* folder :
       {"/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d"}) {
    facts.excluded = facts.excluded || is_excluded_in(folder, where.path);
  }
  return facts;
}

std::vector<ForeignHolder> find_foreign_holders(const HarbourLocation& ours,
                                                const std::set<std::string>& known) {
  std::vector<ForeignHolder> holders;
  for (const pid_t pid : list_processes()) {
    const fs::path process = fmt::format("/proc/{}", pid);
    auto variables = read_berth_variables(process);
    const std::string& lease = variables["BERTH_LEASE"];
    if (lease.empty() || known.contains(lease)) continue;
    // Another simulated server has other GPUs.
    if (variables["BERTH_SIM"] != get_env_or_empty("BERTH_SIM") ||
        variables["BERTH_SIM_STATE"] != get_env_or_empty("BERTH_SIM_STATE")) {
      continue;
    }
    const std::string& chosen = variables["BERTH_DIR"];
    const std::string harbour = chosen.empty() ? default_harbour_location().path : chosen;
    if (harbour == ours.path) continue;  // a lease of our harbour that has ended
    std::string name;
    std::ifstream comm(process / "comm");
    std::getline(comm, name);
    holders.push_back({harbour, name, pid});
  }
  return holders;
}

}  // namespace berth
