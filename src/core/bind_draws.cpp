#include <nanobind/nanobind.h>

namespace considerate {
void bind_draws(nanobind::module_& m) { (void)m; }
}  // namespace considerate
