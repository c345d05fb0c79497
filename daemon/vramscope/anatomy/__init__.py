"""What a model's files say about it before anything is loaded: names, headers and JSON are read, weights never."""
