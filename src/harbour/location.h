// Where the harbour is, and whether a directory can be one.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cluster/redis/url.h"

namespace berth {

// The same for all users of a host, without anybody setting it up.
constexpr const char* kDefaultHarbour = "/tmp/berth";

// Where what lasts is kept beside that one (see archive/user_folder.h), and in a harbour elsewhere.
constexpr const char* kDefaultArchive = "/var/tmp/berth";
constexpr const char* kArchiveInHarbour = "archive";

struct HarbourLocation {
  std::string path;
  bool is_custom = false;  // by BERTH_DIR

  // Several hosts share a harbour: where its server is, and what this host is called there. The
  // directory is then where this host's bells are.
  std::optional<RedisUrl> url{};
  std::string url_source{};
  std::string host{};
  std::optional<Error> configuration_error{};  // with what the site has set
};

// With the server that the site has set (see base/configuration.h). The directory: BERTH_DIR; else
// the place that belongs to the simulated server, if there is one; else the default.
HarbourLocation harbour_location();

// What goes into a directory that was just made, before anybody else can lock it.
using DirectoryInitializer = std::function<void(int directory)>;

// The same as if BERTH_DIR were not set.
HarbourLocation default_harbour_location();

// Opens the directory, and makes it if there is none. The error (ErrorKind::io) says why it
// cannot be a harbour: not a directory, on a network file system, one in which a user could delete
// another user's lease, one with an access control list, or one that would have to be made where
// other users could replace it.
Result<UniqueFd> open_harbour_directory(const HarbourLocation& location,
                                        const DirectoryInitializer& initialize = {});

// Makes it in a folder in which only this user and root can rename. True if there is one now, even
// if another client has made it; else errno says why not.
bool make_harbour_directory(int parent, const std::string& name,
                            const DirectoryInitializer& initialize = {});

// Puts a new directory in the place of whatever `name` in `parent` is, which is called `new_name`
// from then on, in one step. False, with errno, if it stays as it was.
bool replace_with_harbour_directory(int parent, const std::string& name,
                                    const std::string& new_name);

// In words, if this process probably sees another harbour than the rest of the host: in a service
// with a /tmp of its own, or in a container.
std::optional<std::string> detect_private_harbour(const HarbourLocation& location, int directory);

// The name of a network file system, if the open directory is on one.
std::optional<std::string> detect_network_file_system(int directory);

}  // namespace berth
