// The walk's table as Python holds it.
#pragma once
#include <vector>

#include "arrays.hpp"
#include "walk.hpp"

namespace considerate {

// Rows of indices from 0 to limit - 1, checked.
inline Lists lists(const In<std::int64_t>& starts, const In<std::int32_t>& indices, std::int64_t limit,
                   const char* name) {
  require(starts.size() >= 1 && starts.data()[0] == 0, name);
  for (std::size_t i = 1; i < starts.size(); ++i) require(starts.data()[i] >= starts.data()[i - 1], name);
  require(starts.data()[starts.size() - 1] == static_cast<std::int64_t>(indices.size()), name);
  for (std::size_t e = 0; e < indices.size(); ++e) require(indices.data()[e] >= 0 && indices.data()[e] < limit, name);
  return {starts.data(), indices.data()};
}

struct PyWalkTable {
  WalkTable raw;
  std::int64_t items;
  std::vector<nb::object> held;  // the arrays stay as long as this
};

}  // namespace considerate
