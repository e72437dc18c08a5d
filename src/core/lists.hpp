// Lists of indices that come from Python.
#pragma once
#include "arrays.hpp"
#include "walk.hpp"

namespace considerate {

// Rows of indices, each checked to be below the limit.
inline Lists lists(const In<std::int64_t>& starts, const In<std::int32_t>& indices, std::int64_t limit,
                   const char* name) {
  require(starts.size() >= 1 && starts.data()[0] == 0, name);
  for (std::size_t i = 1; i < starts.size(); ++i) require(starts.data()[i] >= starts.data()[i - 1], name);
  require(starts.data()[starts.size() - 1] == static_cast<std::int64_t>(indices.size()), name);
  for (std::size_t e = 0; e < indices.size(); ++e) require(indices.data()[e] >= 0 && indices.data()[e] < limit, name);
  return {starts.data(), indices.data()};
}

}  // namespace considerate
