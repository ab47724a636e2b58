// Sorts rows by route; rows of one route keep their order. `starts` has the first place of each route, and the end of all.
// One block: each of its threads has some routes, and walks all rows for each.
extern "C" __global__ void __launch_bounds__(1024)
route_rows(const i32* routes, u32* room, u64* error, u64 rows, u64 matrices) {
    u32* starts = room;
    u32* order = room + matrices + 1;
    for (u64 row = threadIdx.x; row < rows; row += blockDim.x) {
        if (routes[row] != NOWHERE && !names_a_row(routes[row], matrices)) note_index(error, routes, row, matrices);
    }
    for (u64 route = threadIdx.x; route < matrices; route += blockDim.x) {
        u32 count = 0;
        for (u64 row = 0; row < rows; row++) count += routes[row] == (i32)route;
        starts[route + 1] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        starts[0] = 0;
        for (u64 route = 0; route < matrices; route++) starts[route + 1] += starts[route];
    }
    __syncthreads();
    for (u64 route = threadIdx.x; route < matrices; route += blockDim.x) {
        u32 next = starts[route];
        for (u64 row = 0; row < rows; row++) {
            if (routes[row] == (i32)route) order[next++] = (u32)row;
        }
    }
}
