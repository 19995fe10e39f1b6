//! A group along an axis that there is not.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(node: Axis, gpu: Axis) {
    chunks(gpu.size);

    play(reduce_scatter::ring).over(gpus);
    play(all_reduce::ring).over(node).on(data[gpu]);
    play(all_gather::ring).over(gpu);
}

fn main() {}
