// Requests whose answer is known, and the many others that this settles.
#pragma once

#include <vector>

#include "schedule/request.h"

namespace berth::schedule {

// Would GPUs that do for `b` do for `a`, too? Only where both put the same conditions on them.
bool is_no_stricter(const Request& a, const Request& b);

class DominanceCache {
 public:
  // Does the answer to `known` hold for `request`?
  using Rule = bool (*)(const Request& known, const Request& request);
  explicit DominanceCache(Rule rule) : rule_(rule) {}

  bool covers(const Request& request) const;

  // Remembers so many that a search among them never takes longer than the answer itself; past that
  // it forgets, which costs time and nothing else.
  void add(Request known);

 private:
  Rule rule_;
  std::vector<Request> known_;  // none of them covers another
};

}  // namespace berth::schedule
