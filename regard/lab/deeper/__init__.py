"""What attention weights alone cannot answer: which parts of a model its answer depends on.

loaded = regard.load("my-gpt")
loaded.lens("the cat sat on the")                    # what each layer would answer
loaded.ablate("the cat sat on the", heads=[(3, 2)])  # what changes without a head
loaded.patch("the cat sat on", "the dog sat on")     # what makes the two answers differ
loaded.attribute("the cat sat on the")               # which tokens the answer depends on

Layers, heads and positions are counted from 1, as on the page of `regard look`; layer 0 is the
input of the first layer.
"""
