//! A group along an axis that there is not.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(node: Axis, gpu: Axis) {
    chunks(gpu.size);

    run(reduce_scatter::ring).over(gpus);
    run(all_reduce::ring).over(node).on(data[gpu]);
    run(all_gather::ring).over(gpu);
}

fn main() {}
