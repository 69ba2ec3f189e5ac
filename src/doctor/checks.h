// What `berth doctor` concludes: facts about this host in, findings in words out. Pure:
// collect.h gathers the facts.
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

// Nothing in it is fit for a terminal yet.
struct Finding {
  std::string check;  // a word: what was looked at. docs/json.md lists them
  Level level = Level::ok;
  std::string text;    // what is the case
  std::string remedy;  // what to do about it; may be empty
};

using Findings = std::vector<Finding>;

// An error as a finding. Errors say what, why, and behind a semicolon what to do.
Finding make_problem(std::string check, const Error& error);

struct DirectoryFacts {
  HarbourLocation where;
  bool simulated = false;  // the harbour of a simulated server: it needs no root
  uid_t owner = 0;
  std::string owner_name;
  mode_t mode = 01777;
  std::string movable_by;        // who else can move it away, by owning the folder above; or empty
  bool has_access_list = false;  // it has an access control list, which its mode does not show
  std::optional<std::string>
      network_file_system;  // the name of the network file system that it is on
  bool writable = true;     // for this user
  std::optional<Bytes> free_space;
  std::optional<std::uint64_t> free_files;
  std::optional<std::string> private_harbour_reason;  // why others probably see another harbour
};

Findings check_directory(const DirectoryFacts& facts);

// The server of a harbour of several hosts.
struct ServerFacts {
  std::string name;              // its URL, without secrets
  std::string source;            // where that was written
  std::string host;              // what this host is called there
  std::optional<Error> error{};  // it cannot be used
  bool has_password = false;
  bool open_to_all = false;  // it needs no password, and others than this host can reach it
  bool loses_data_on_restart = false;  // it keeps nothing over a restart
  std::size_t bypassing_clients = 0;   // leases and tickets of this host that do not use it
  std::vector<IgnoredEntry> ignored_entries{};
};
Findings check_server(const ServerFacts& facts);

// A file in the harbour that does not count.
struct IgnoredFile {
  IgnoredEntry entry;
  bool is_directory = false;
  std::uint64_t inode = 0;
};

// At most 20 planted files are listed, then counted. `viewer` is the user who asks.
Findings check_files(const std::string& path, const std::vector<IgnoredFile>& files, uid_t viewer);

struct WaitingTicket {
  Record record;
  bool stopped = false;
  bool silent = false;  // could have had GPUs for some seconds, and did not claim them
  // The kernel says that its process is stopped: its PID is not only the word of its record.
  bool stopped_by_signal = false;
};

// Stopped and silent waiters. In the queue's order.
Findings check_queue(const std::vector<WaitingTicket>& tickets);

// Leases that live and cannot be read: they count as holding what they may hold.
Findings check_unreadable(const std::string& path, const std::vector<Record>& leases);

// Leases and tickets that are dated in the future, or come from a later version of berth.
Findings check_records(const std::vector<Record>& leases, const std::vector<Record>& tickets,
                       TimePoint now);

Findings check_drains(const std::vector<Drain>& drains, const HostView& view, TimePoint now);

// GPUs that cannot be used, and strangers. `viewer` is the user who asks.
Findings check_gpus(const HostView& view, uid_t viewer);

// A process that runs under a lease of another harbour.
struct ForeignHolder {
  std::string harbour;
  std::string name;
  std::int64_t pid = 0;
};

struct OtherHarbours {
  std::size_t in_default =
      0;  // live leases and tickets in the default harbour, where that is not ours
  std::string default_path;
  std::vector<ForeignHolder> holders;
};

Findings check_other_harbours(const OtherHarbours& others, const HarbourLocation& ours);

struct LimitFacts {
  std::optional<std::uint64_t> descriptors;  // the hard limit; nothing if there is none
  std::optional<std::uint64_t> processes;  // the soft limit; nothing if there is none, as for root
  std::optional<std::uint64_t> inotify_instances;
};

Findings check_limits(const LimitFacts& facts);

struct ProcFacts {
  bool exists = true;
  std::string hidepid;             // the mount's option, if it hides processes
  bool hides_other_users = false;  // from us
  bool has_host_pids = true;
};

Findings check_proc(const ProcFacts& facts);

// Whether the kernel keeps users from making hard links to, and from following symbolic links of,
// other users in shared directories (fs.protected_hardlinks, fs.protected_symlinks).
struct LinkFacts {
  bool hardlinks_protected = true;
  bool symlinks_protected = true;
};

Findings check_links(const LinkFacts& facts);

struct CleaningFacts {
  HarbourLocation where;
  bool cleaned_by_tmpfiles =
      false;              // systemd-tmpfiles is there, and cleans the folder that the harbour is in
  bool excluded = false;  // it is told to leave the harbour alone
};

Findings check_cleaning(const CleaningFacts& facts);

// Where history and profiles are kept; see archive/user_folder.h.
struct ArchiveFacts {
  bool simulated = false;
  std::string path;
  bool exists = true;
  bool is_directory = true;
  uid_t owner = 0;
  std::string owner_name{};
  mode_t mode = 01777;
  std::string folder_taken_by{};  // who has taken the name of this user's folder, if anybody has
  bool writable = true;           // for this user
  std::optional<Bytes> free_space{};
  HarbourLocation where{};  // the harbour that it belongs to
};

// Notes at most: nobody needs the archive for a GPU.
Findings check_archive(const ArchiveFacts& facts);

}  // namespace berth
