"""The perceptron ResNet layer by layer in numpy, from the equations: the slow reference, and what a user would write.

H, B and the data are (D, N), U and V (L, D, M). Arrays are made once and kept; products go through BLAS.
"""

import numpy as np


class NumpyResNet:
    """Full-batch gradient descent on |H_L - Y|^2 / (2 N D)."""

    def __init__(self, U, V, X, Y, *, alpha=1.0, eta=1.0, eta_u=None, eta_v=None):
        self.U, self.V, self.X, self.Y = U.copy(), V.copy(), X.astype(U.dtype), Y.astype(U.dtype)
        L, D, M = U.shape
        N = X.shape[1]
        self.alpha = alpha
        self.rate_u = eta * (D if eta_u is None else eta_u) / alpha
        self.rate_v = eta * (D if eta_v is None else eta_v) / alpha
        self.H = np.empty((L + 1, D, N), U.dtype)
        self.T = np.empty((L, M, N), U.dtype)

    def forward(self):
        L, D, M = self.U.shape
        self.H[0] = self.X
        for layer in range(L):
            P = self.U[layer].T @ self.H[layer] / D
            np.tanh(P, out=self.T[layer])
            self.H[layer + 1] = self.H[layer] + self.alpha / (L * M) * (self.V[layer] @ self.T[layer])
        return self.H[L]

    def backward(self):
        L, D, M = self.U.shape
        B = (self.H[L] - self.Y) / self.Y.size
        for layer in reversed(range(L)):
            Q = (1 - self.T[layer] ** 2) * (self.V[layer].T @ B)
            G = self.U[layer] @ Q
            self.U[layer] -= self.rate_u / D * (self.H[layer] @ Q.T)
            self.V[layer] -= self.rate_v * (B @ self.T[layer].T)
            B = B + self.alpha / (L * M * D) * G

    def loss(self):
        return np.mean((self.H[-1] - self.Y) ** 2)

    def train(self, steps):
        """(outputs before each step and after the last, losses)."""
        outputs, losses = [self.forward().copy()], [self.loss()]
        for _ in range(steps):
            self.backward()
            outputs.append(self.forward().copy())
            losses.append(self.loss())
        return outputs, np.array(losses)
