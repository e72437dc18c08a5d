// The walk's table as Python holds it.
#pragma once
#include <vector>

#include "arrays.hpp"
#include "walk.hpp"

namespace considerate {

struct PyWalkTable {
  WalkTable raw;
  std::int64_t items;
  std::vector<nb::object> held;  // the arrays stay as long as this
};

}  // namespace considerate
