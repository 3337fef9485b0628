/** A first-in, first-out list in constant time: the shift of a long array moves all its items. */
export class Queue<T> {
  #in: T[] = [];
  /** The first items, the next one last. */
  #out: T[] = [];

  push(item: T): void {
    this.#in.push(item);
  }

  /** Removes and returns the first item. */
  shift(): T | undefined {
    if (this.#out.length === 0) {
      this.#out = this.#in.reverse();
      this.#in = [];
    }
    return this.#out.pop();
  }

  clear(): void {
    this.#in = [];
    this.#out = [];
  }
}
