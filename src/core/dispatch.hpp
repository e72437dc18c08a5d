// The choice of the kernels' build for this machine.
#pragma once
#include <cstring>

#include "kernels.hpp"

namespace considerate {

extern const KernelTable table_baseline;
#ifdef CONSIDERATE_X86
extern const KernelTable table_avx2, table_avx512;
#endif

// The builds that this processor can run, best first; their number.
inline int runnable_kernels(const KernelTable** into) {
  int count = 0;
#ifdef CONSIDERATE_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    into[count++] = &table_avx512;
  if (avx2) into[count++] = &table_avx2;
#endif
  into[count++] = &table_baseline;
  return count;
}

inline const KernelTable*& kernels_in_use() {
  static const KernelTable* in_use = [] {
    const KernelTable* found[3];
    runnable_kernels(found);
    return found[0];
  }();
  return in_use;
}

}  // namespace considerate
