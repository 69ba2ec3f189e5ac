// What --url means; see url_flag.h.
#include "cli/url_flag.h"

#include <cstdlib>
#include <string>

#include "cluster/redis/url.h"

namespace berth {

void add_url_flag(Flags& command) {
  command.set_group("Options");
  command.add_value("--url", "URL", "The harbour's server, instead of BERTH_URL",
                    [](std::string_view text) -> Result<void> {
                      const std::string url(text);
                      if (!url.empty() && !url.starts_with("file:")) {
                        const auto parsed = parse_redis_url(url);
                        if (!parsed) return tl::make_unexpected(parsed.error());
                        if (!parsed->password.empty()) {
                          return fail(
                              ErrorKind::usage,
                              "its password would show in 'ps'; write the URL to a file that "
                              "only you can read (chmod 600), and say --url file:PATH");
                        }
                      }
                      // What it starts (the jobs of a batch, berth inside a job) means the same
                      // one.
                      ::setenv("BERTH_URL", url.c_str(), 1);
                      return {};
                    });
}

}  // namespace berth
