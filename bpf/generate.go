package bpf

// The compiler is Debian's clang-19: another one makes another object, and `make check-generate` says so.

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -output-stem guideway -type service -type service_key4 -type service_key6 -type backend -type table_head -type table_chunk -type flow -type flow_key4 -type flow_key6 -type fragment -type fragment_key -type nat_flow -type nat_back -type backend_counters -type service_counters -type devmap_value -type sample -type event -type track -type hash_policy -type service_flag -type forwarding -type backend_flag guideway guideway.c -- -Wall -Wextra -Werror -O2 -mcpu=v3 -std=gnu11 -fno-strict-aliasing -nostdinc
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -output-stem measure measure measure.c -- -Wall -Wextra -Werror -O2 -mcpu=v3 -std=gnu11 -fno-strict-aliasing -nostdinc
