// A cache of requests whose answer is known, which also answers stricter or weaker requests.
#pragma once

#include <vector>

#include "schedule/request.h"

namespace berth::schedule {

// Whether any GPUs that satisfy `b` satisfy `a`, too. False if the two have different conditions on
// the GPUs, which cannot be compared.
bool is_no_stricter(const Request& a, const Request& b);

class DominanceCache {
 public:
  // Whether the answer to `known` also holds for `request`.
  using Rule = bool (*)(const Request& known, const Request& request);
  explicit DominanceCache(Rule rule) : rule_(rule) {}

  bool covers(const Request& request) const;

  // The number of entries is limited, so that a search is never slower than computing the answer.
  // Requests beyond the limit are dropped, which costs only time.
  void add(Request known);

 private:
  Rule rule_;
  std::vector<Request> known_;  // no entry covers another one
};

}  // namespace berth::schedule
