[(schedule) (layer) (model) (pipeline) (block) (body) (layers) (train)] @fold
