// Running of scripts; see script.h.
#include "cluster/redis/script.h"

#include "base/sha1.h"
#include "cluster/redis/resp_channel.h"

namespace berth {

Script::Script(std::string_view source) : source_(source), sha1_(berth::sha1(source)) {}

RedisConnection::Words Script::words(const std::vector<std::string>& keys,
                                     const std::vector<std::string>& arguments) const {
  RedisConnection::Words words{"EVALSHA", sha1_, std::to_string(keys.size())};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

Result<Reply> Script::run(RedisConnection& connection, const std::vector<std::string>& keys,
                          const std::vector<std::string>& arguments) const {
  auto words = this->words(keys, arguments);
  auto answer = connection.ask(words);
  if (answer && answer->error && answer->error->starts_with("NOSCRIPT")) {
    words[0] = "EVAL";
    words[1] = source_;
    answer = connection.ask(words);
  }
  if (!answer) return tl::make_unexpected(answer.error());
  return connection.to_result(std::move(*answer));
}

}  // namespace berth
