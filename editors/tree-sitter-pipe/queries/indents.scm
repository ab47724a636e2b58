[(schedule) (layer) (model) (pipeline) (block) (body) (layers) (train) (arguments) (parameters) (list)] @indent.begin
["}" ")" "]"] @indent.branch @indent.end
