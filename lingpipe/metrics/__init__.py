"""How good a model is: perplexity and accuracy as weighted means, BLEU and chrF by sacrebleu.

Nothing here needs TensorFlow. Import each name from its module.
"""
