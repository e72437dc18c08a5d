// The Python module `considerate.kernels.compiled`. Each file binds one subject.
#include <nanobind/nanobind.h>

namespace considerate {
void bind_graph(nanobind::module_& m);
void bind_draws(nanobind::module_& m);
void bind_pass(nanobind::module_& m);
void bind_sums(nanobind::module_& m);
void bind_full(nanobind::module_& m);
void bind_score(nanobind::module_& m);
void bind_rank(nanobind::module_& m);
void bind_simulate(nanobind::module_& m);
void bind_walk(nanobind::module_& m);
}  // namespace considerate

NB_MODULE(compiled, m) {
  m.doc() = "Kernels on arrays: serial and without the GIL. Threads live in considerate.kernels.threads.";
  considerate::bind_pass(m);
  considerate::bind_graph(m);
  considerate::bind_draws(m);
  considerate::bind_sums(m);
  considerate::bind_full(m);
  considerate::bind_score(m);
  considerate::bind_rank(m);
  considerate::bind_simulate(m);
  considerate::bind_walk(m);
}
