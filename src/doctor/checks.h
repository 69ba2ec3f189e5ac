// The checks of `berth doctor`: pure functions from facts about this host to findings for the user.
// collect.h collects the facts and runs the checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "harbour/location.h"
#include "harbour/transaction.h"
#include "status/host_view.h"

namespace berth {

enum class Level : std::uint8_t { ok, note, problem };

std::string_view to_string(Level level);

// The texts may contain names that other users chose: escape them before they reach a terminal.
struct Finding {
  std::string check;  // the name of the check, one word; docs/json.md lists them
  Level level = Level::ok;
  std::string text;       // what was found
  std::string remedy;     // what the user can do about it; may be empty
  std::size_t count = 1;  // how many things it is about, if it counts the rest of a list
};

using Findings = std::vector<Finding>;

// An error as a finding. Error messages put the remedy behind a semicolon; it becomes
// Finding::remedy.
Finding make_problem(std::string check, const Error& error);

struct DirectoryFacts {
  HarbourLocation where;
  bool simulated = false;  // the harbour of a simulated server, which root need not own
  uid_t owner = 0;
  std::string owner_name;
  mode_t mode = 01777;
  std::string movable_by;  // the user (or all) who can rename it, by the folder above; or empty
  bool has_access_list = false;  // an access control list, which the mode does not show
  std::optional<std::string> network_file_system;  // its type, such as "nfs"; nullopt: local
  bool writable = true;                            // for this user
  std::optional<Bytes> free_space;
  std::optional<std::uint64_t> free_files;
  // Why other users probably see another harbour; nullopt: they see this one.
  std::optional<std::string> private_harbour_reason;
};

Findings check_directory(const DirectoryFacts& facts);

// The Redis server of a harbour of several hosts.
struct ServerFacts {
  std::string name;                    // its URL, without secrets
  std::string source;                  // where the URL was configured
  std::string host;                    // the name of this host there
  std::optional<Error> error{};        // the server cannot be used
  bool open_to_all = false;            // it needs no password, and other hosts can reach it
  bool loses_data_on_restart = false;  // it saves neither a snapshot nor a log
  std::size_t bypassing_clients = 0;   // leases and tickets of this host that do not use the server
  std::vector<IgnoredEntry> ignored_entries{};
};
Findings check_server(const ServerFacts& facts);

// A file in the harbour that berth ignores.
struct IgnoredFile {
  IgnoredEntry entry;
  std::uint64_t inode = 0;
};

// Lists at most 20 untrusted files, then counts the rest. Files that berth would never name so are
// one note, because they cannot be meant for it. `viewer` is the user who runs doctor.
Findings check_files(const std::string& path, const std::vector<IgnoredFile>& files, uid_t viewer);

struct WaitingTicket {
  Record record;
  bool stopped = false;
  bool silent = false;  // could have claimed GPUs for some seconds, and did not
  // The kernel reports that its process is stopped; so the PID of its record is confirmed.
  bool stopped_by_signal = false;
};

// Stopped and silent tickets, in the order of the queue.
Findings check_queue(const std::vector<WaitingTicket>& tickets);

// Leases that are alive but cannot be read: they count as holding every GPU that they may hold.
Findings check_unreadable(const std::string& path, const std::vector<Record>& leases);

// Leases and tickets that are dated in the future, or were made by a later version of berth.
Findings check_records(const std::vector<Record>& leases, const std::vector<Record>& tickets,
                       TimePoint now);

Findings check_drains(const std::vector<Drain>& drains, const HostView& view, TimePoint now);

// GPUs that cannot be used, and strangers. `viewer` is the user who runs doctor.
Findings check_gpus(const HostView& view, uid_t viewer);

// A process that runs under a lease of another harbour.
struct ForeignHolder {
  std::string harbour;
  std::string name;
  std::int64_t pid = 0;
};

struct OtherHarbours {
  // Live leases and tickets in the default harbour; 0 if this process uses that harbour itself.
  std::size_t in_default = 0;
  std::string default_path;
  std::vector<ForeignHolder> holders;
};

Findings check_other_harbours(const OtherHarbours& others, const HarbourLocation& ours);

struct LimitFacts {
  std::optional<std::uint64_t> descriptors;  // the hard limit; nullopt: unlimited
  std::optional<std::uint64_t> processes;    // the soft limit; nullopt: unlimited, as for root
  std::optional<std::uint64_t> inotify_instances;
};

Findings check_limits(const LimitFacts& facts);

struct ProcFacts {
  bool exists = true;
  std::string hidepid;             // the mount option, if it hides processes
  bool hides_other_users = false;  // from this process
  bool has_host_pids = true;
};

Findings check_proc(const ProcFacts& facts);

// Whether the kernel stops users from making hard links to files of other users, and from following
// symbolic links of other users in shared directories (fs.protected_hardlinks,
// fs.protected_symlinks).
struct LinkFacts {
  bool hardlinks_protected = true;
  bool symlinks_protected = true;
};

Findings check_links(const LinkFacts& facts);

struct CleaningFacts {
  HarbourLocation where;
  bool cleaned_by_tmpfiles = false;  // systemd-tmpfiles is installed, and cleans the folder above
  bool excluded = false;             // a file of tmpfiles.d excludes the harbour
};

Findings check_cleaning(const CleaningFacts& facts);

// The folder of history and profiles; see archive/user_folder.h.
struct ArchiveFacts {
  bool simulated = false;
  std::string path;
  bool exists = true;
  bool is_directory = true;
  uid_t owner = 0;
  std::string owner_name{};
  mode_t mode = 01777;
  std::string folder_taken_by{};  // the user who made a folder with this user's id; or empty
  bool writable = true;           // for this user
  std::optional<Bytes> free_space{};
  HarbourLocation where{};  // the harbour that the archive belongs to
};

// Gives notes at most: a GPU can be leased without the archive.
Findings check_archive(const ArchiveFacts& facts);

}  // namespace berth
