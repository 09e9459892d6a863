"""What people are shown of a training: progress, curves, pictures, speed. No cache key counts this
package: nothing that decides what is trained comes from here."""
