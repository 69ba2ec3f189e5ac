// The harbour's location: finds the directory, and the server if several hosts share the harbour;
// creates the directory, and refuses one that is not safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cluster/redis/url.h"

namespace berth {

// The same for all users of a host, and usable without setup by an administrator.
constexpr const char* kDefaultHarbour = "/tmp/berth";

// The archive (see archive/user_folder.h) of the default harbour, and the name of the archive's
// directory inside any other harbour.
constexpr const char* kDefaultArchive = "/var/tmp/berth";
constexpr const char* kArchiveInHarbour = "archive";

// The mode of the harbour's directory and of the archive's: all users can create files, and only
// the owner of a file can remove it.
constexpr mode_t kHarbourMode = 01777;

struct HarbourLocation {
  std::string path;        // of the directory
  bool is_custom = false;  // set by BERTH_DIR

  // If several hosts share the harbour: the server, where its URL was configured, and the name of
  // this host on it. The directory then has the bells of this host's clients.
  std::optional<RedisUrl> url{};
  std::string url_source{};
  std::string host{};
  std::optional<Error> configuration_error{};  // the configuration cannot be read or is invalid
};

// The directory is BERTH_DIR; else that of the simulated server, if there is one; else the default.
// The server is the one that the site has configured (see base/configuration.h).
HarbourLocation harbour_location();

// Called with a directory that was just created, while it is locked: no other client can take the
// lock before it returns.
using DirectoryInitializer = std::function<void(int directory)>;

// The directory as if BERTH_DIR were not set. Without a server.
HarbourLocation default_harbour_location();

// Opens the directory, and creates it if it does not exist. Creating it takes at least 200 ms:
// clients that held leases in a deleted directory need this time to put them back. The error is
// location.configuration_error, or (ErrorKind::io) says why the directory cannot be a harbour:
// - It is not a directory, or the default path is a symbolic link.
// - It is on a network file system.
// - A user could delete another user's lease in it, or it has an access control list.
// - It does not exist, and other users could replace it in the folder above.
Result<UniqueFd> open_harbour_directory(const HarbourLocation& location,
                                        const DirectoryInitializer& initialize = {});

// Creates the directory `name` in `parent`, in which only this user and root may be able to rename
// (the caller checks that). Returns true if the directory exists now, even if another client
// created it; else errno says why not.
bool make_harbour_directory(int parent, const std::string& name,
                            const DirectoryInitializer& initialize = {});

// Exchanges what is at `name` in `parent` for a new directory, in one step. The old file or
// directory is called `new_name` from then on. Returns false, with errno, if nothing changed.
bool replace_with_harbour_directory(int parent, const std::string& name,
                                    const std::string& new_name);

// A sentence for the user if this process probably sees another harbour than the rest of the host,
// because it runs in a service with a private /tmp or in a container. `directory` is open on it.
std::optional<std::string> detect_private_harbour(const HarbourLocation& location, int directory);

// The name of a network file system, if the open directory is on one.
std::optional<std::string> detect_network_file_system(int directory);

}  // namespace berth
