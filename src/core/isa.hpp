// The instruction set that a kernel header is built for. CMakeLists.txt builds kernels.cpp once for each of them, in a
// namespace of its own: CONSIDERATE_ISA names it.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels.hpp"

#ifndef CONSIDERATE_ISA
#define CONSIDERATE_ISA baseline
#endif
