"""What Fed-SMP leaves open, where it contradicts itself, and how it is read here."""

BEST = (
    "accuracy is the best over the evaluations, chosen on the test set, as in the paper; it is evaluated every 5 "
    "rounds (Shakespeare: 20), which the paper does not say"
)
EPSILON = (
    "eps is of all the paper's rounds, computed, whether they are trained or not; the claim is the Rényi analysis of "
    "the Poisson subsampled Gaussian, which is not proved for the paper's cohorts of fixed size; the certificate is, "
    "for another client in the place of one, so that the two do not compare"
)
UPLINK = "uplink is 32 k T (r / n) bits in the paper; here it is counted, and in proportion to the rounds trained"
OPEN = "the paper does not say how pixels are scaled (here 0 to 1), nor its initial weights (here flax's defaults)"

SUMMARY = (BEST, EPSILON, UPLINK, OPEN)
TRADE_OFF = (
    EPSILON,
    "the paper varies sigma and prints eps alone; sigma here is the round number for which its formula gives that eps "
    "(its q = 100 / 6000, rounded to 0.0167 in what it prints, accounts for 2.02 where 2.01 is computed)",
)
FIGURE2 = (
    "the picture has no numbers to compare with; the table has the savings that Section 6.3.1 states: the uplink at "
    "the first evaluation at which the mean accuracy reaches the target, against DP-FedAvg's",
    BEST,
)
FIGURE3 = (
    "train loss: after the last round, on 10,000 evenly spaced training examples (the paper does not say on which, nor "
    "when); test accuracy: the best over the evaluations, as in Tables 1 to 3, whose numbers are the published ones",
    "at p = 1 the lines end in FedAvg and DP-FedAvg, which they then are",
    BEST,
)
TABLE1 = (
    "Section 6.3 has 86.61 for FedAvg and 71.40 for DP-FedAvg where the table has 86.98 and 72.72"
)
TABLE5 = "80.16 at p = 0.8 is what Table 1 has for p = 0.2; for p = 0.8 it has 79.77"
TABLE7 = (
    "the row of eps 1.01 has the accuracies that Table 2 has for p = 0.005, 0.01, 0.05, 0.4 and 0.8, so that the "
    "headings 0.05, 0.1 and 0.2 are taken to mean the first three of these, which are trained"
)
SHAKESPEARE = (
    "the paper's eps is for a hypothetical population of 10^9; the certificate is for 1138 roles, those of the plays; "
    "the paper has 715, from another edition, so that accuracies compare in shape only",
    "the text says sigma = 0.3, but its formula gives 6.99 for 1 / sqrt(10) = 0.316 (7.90 for 0.3), and the other eps "
    "for 0.8, 1.2 and 1.4 over sqrt(10): these are trained",
)
